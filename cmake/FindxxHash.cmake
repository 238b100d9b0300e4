# The header of xxHash, which needs no library: the target xxHash::xxhash.
find_path(XXHASH_INCLUDE_DIR xxhash.h)
if(XXHASH_INCLUDE_DIR)
  file(STRINGS ${XXHASH_INCLUDE_DIR}/xxhash.h lines
    REGEX "define +XXH_VERSION_(MAJOR|MINOR|RELEASE) ")
  string(REGEX REPLACE "[^0-9;]" "" numbers "${lines}")
  string(REPLACE ";" "." XXHASH_VERSION "${numbers}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(xxHash
  REQUIRED_VARS XXHASH_INCLUDE_DIR VERSION_VAR XXHASH_VERSION)
mark_as_advanced(XXHASH_INCLUDE_DIR)
if(xxHash_FOUND AND NOT TARGET xxHash::xxhash)
  add_library(xxHash::xxhash INTERFACE IMPORTED)
  set_target_properties(xxHash::xxhash PROPERTIES INTERFACE_INCLUDE_DIRECTORIES ${XXHASH_INCLUDE_DIR})
endif()
