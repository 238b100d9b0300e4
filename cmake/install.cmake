# What an installation holds: libraries and headers with their export, and the data of models and clusters.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/fpdt)
install(EXPORT fpdtTargets NAMESPACE fpdt:: DESTINATION ${package_dir})
configure_package_config_file(cmake/fpdtConfig.cmake.in ${PROJECT_BINARY_DIR}/fpdtConfig.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/fpdtConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/fpdtConfig.cmake ${PROJECT_BINARY_DIR}/fpdtConfigVersion.cmake
  DESTINATION ${package_dir})
install(DIRECTORY models configs DESTINATION ${CMAKE_INSTALL_DATADIR}/fpdt)
