# Libraries of devices, of which the build needs headers alone: fpdt-run loads them when it uses
# them (runtime/fpdt/runtime/library.h).

# Folders of NVIDIA's Python wheels, site-packages/nvidia/*, of the Python that is in use.
function(fpdt_find_wheels result)
  find_program(FPDT_PYTHON NAMES python3)
  set(all)
  if(FPDT_PYTHON)
    execute_process(
      COMMAND ${FPDT_PYTHON} -c "import nvidia; print(';'.join(nvidia.__path__))"
      OUTPUT_VARIABLE places OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    foreach(place IN LISTS places)
      file(GLOB found LIST_DIRECTORIES true ${place}/*)
      list(APPEND all ${found})
    endforeach()
  endif()
  set(${result} ${all} PARENT_SCOPE)
endfunction()

# fpdt_device_library(NAME HEADER header FILE file VERSION_HEADER header VERSION_PREFIX prefix
#   [WHEELS dir...]): looks where NAME_ROOT, the toolkit and wheels have it. Sets NAME_INCLUDE_DIR,
# false where there is none; NAME_VERSION, by the macros prefixMAJOR and prefixMINOR; and
# NAME_FOLDERS, where `file` was seen, with colons between them.
function(fpdt_device_library name)
  cmake_parse_arguments(arg "" "HEADER;FILE;VERSION_HEADER;VERSION_PREFIX" "WHEELS" ${ARGN})
  find_path(${name}_INCLUDE_DIR ${arg_HEADER}
    HINTS ${${name}_ROOT} ENV ${name}_ROOT ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
  find_path(${name}_INCLUDE_DIR ${arg_HEADER} HINTS ${arg_WHEELS} PATH_SUFFIXES include)
  mark_as_advanced(${name}_INCLUDE_DIR)
  set(folders)
  foreach(place IN ITEMS ${${name}_ROOT} $ENV{${name}_ROOT} ${arg_WHEELS})
    foreach(folder IN ITEMS ${place}/lib64 ${place}/lib)
      if(EXISTS ${folder}/${arg_FILE})
        list(APPEND folders ${folder})
      endif()
    endforeach()
  endforeach()
  # Beside the compiler, whether or not it is there now; and where most machines have a toolkit.
  list(APPEND folders ${CUDAToolkit_LIBRARY_DIR} /usr/local/cuda/lib64)
  list(REMOVE_DUPLICATES folders)
  string(REPLACE ";" ":" folders "${folders}")
  set(${name}_FOLDERS ${folders} PARENT_SCOPE)
  set(version)
  foreach(part MAJOR MINOR)
    if(EXISTS ${${name}_INCLUDE_DIR}/${arg_VERSION_HEADER})
      file(STRINGS ${${name}_INCLUDE_DIR}/${arg_VERSION_HEADER} line
        REGEX "define ${arg_VERSION_PREFIX}${part} +[0-9]+")
      string(REGEX MATCH "[0-9]+$" number "${line}")
      list(APPEND version ${number})
    endif()
  endforeach()
  string(REPLACE ";" "." version "${version}")
  set(${name}_VERSION ${version} PARENT_SCOPE)
endfunction()
