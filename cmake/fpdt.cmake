# The functions that every CMakeLists.txt of the project is written in, and its options.

option(FPDT_WERROR "Warnings are errors" OFF)
set(FPDT_SANITIZE "" CACHE STRING "Sanitizers of the build, such as address,undefined or thread")
option(FPDT_NATIVE "Compile the CPU kernels for the build machine's instruction set" ON)
option(FPDT_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(FPDT_QUICK "For a whole run of the tests, which is mostly compilation: what reads and prints is \
hardly optimised, nor are the tests; a program of unit tests is one CTest" OFF)
option(FPDT_LEAVE_UNITS "Leave tests that are labelled unit alone to a build with sanitizers" OFF)
option(FPDT_CHECK_FORMAT "Test that the sources are formatted (needs clang-format 14)" OFF)

add_library(fpdt_options INTERFACE)
target_compile_options(fpdt_options INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wconversion;-Wsign-conversion;-Wshadow;-Wold-style-cast>"
  "$<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor;-Woverloaded-virtual;-Wswitch-enum>"
  "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wduplicated-cond;-Wlogical-op>"
  "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${FPDT_WERROR}>>:-Werror>")
if(FPDT_SANITIZE)
  # GCC warns of optionals that are set when it instruments them.
  set(FPDT_SANITIZE_FLAGS -fsanitize=${FPDT_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all -Wno-maybe-uninitialized)
  add_link_options(-fsanitize=${FPDT_SANITIZE})
endif()
# Whether lib/ is instrumented. Nothing in it has threads, as a test makes sure: under the thread
# sanitizer it would take most of the time that tests take. As it is, the compiler's cache has its
# objects from a build without sanitizers.
if(FPDT_SANITIZE AND NOT FPDT_SANITIZE MATCHES thread)
  add_compile_options(${FPDT_SANITIZE_FLAGS})
  # For code that casts pointers to those of bytes only. These checks are a fifth of its
  # compilation. ASan still checks every access to memory.
  set(FPDT_FEWER_CHECKS -fno-sanitize=alignment,null,object-size,vptr)
endif()

# Compiling for speed takes gcc twice as long.
if(FPDT_QUICK)
  set(FPDT_COLD_FLAGS -Og)  # cold code: what reads and prints, and tests
  # Many sources in one leave gcc much to collect. It may take 2 GB before it does.
  add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=2000000>")
endif()
if(FPDT_SANITIZE MATCHES address)
  # A call for each check of an access is a tenth faster to compile than the check itself.
  list(APPEND FPDT_COLD_FLAGS
    $<$<CXX_COMPILER_ID:GNU>:--param=asan-instrumentation-with-call-threshold=0>)
endif()
if(FPDT_SANITIZE)
  set(FPDT_HOT_FLAGS -O1)  # hot code: kernels, which sanitizers slow the most
endif()

# fpdt_library(name [NOT_INSTALLED] [COLD] ROOT lib|runtime HEADERS ... SOURCES ... USES ...
#   PRIVATE_USES ...)
# A static library fpdt::name whose CMakeLists.txt reads as its row in the layer table. COLD: it is
# compiled with FPDT_COLD_FLAGS.
function(fpdt_library name)
  cmake_parse_arguments(arg "NOT_INSTALLED;COLD" "ROOT" "HEADERS;SOURCES;USES;PRIVATE_USES" ${ARGN})
  add_library(fpdt_${name} STATIC ${arg_SOURCES})
  add_library(fpdt::${name} ALIAS fpdt_${name})
  target_sources(fpdt_${name} PUBLIC FILE_SET HEADERS
    BASE_DIRS ${PROJECT_SOURCE_DIR}/${arg_ROOT} FILES ${arg_HEADERS})
  target_compile_features(fpdt_${name} PUBLIC cxx_std_20)
  target_link_libraries(fpdt_${name} PUBLIC ${arg_USES}
    PRIVATE $<BUILD_INTERFACE:fpdt_options> ${arg_PRIVATE_USES})
  set_target_properties(fpdt_${name} PROPERTIES EXPORT_NAME ${name} CXX_EXTENSIONS OFF)
  if(arg_ROOT STREQUAL lib)
    target_compile_options(fpdt_${name} PRIVATE ${FPDT_FEWER_CHECKS})
  endif()
  if(arg_COLD)
    target_compile_options(fpdt_${name} PRIVATE ${FPDT_COLD_FLAGS})
  endif()
  if(NOT arg_NOT_INSTALLED)
    install(TARGETS fpdt_${name} EXPORT fpdtTargets FILE_SET HEADERS)
  endif()
endfunction()

# The tests that run under the address sanitizer, and those that run under the thread sanitizer.
add_custom_target(asan_tests)
add_custom_target(threads_tests)
# Builds those labelled `gpu`.
add_custom_target(gpu_tests)

# fpdt_test(name SOURCES ... USES ... LABELS ... [LIBRARY_PATH dir] [NOT_SANITIZED cases]
#   [SLOW_SANITIZED cases] [SHARE_SANITIZED n] [TOGETHER]): a Google Test program. Each case is a
# CTest; with FPDT_QUICK, the cases of a unit test are one CTest, and so are those that take from
# each other (TOGETHER). LIBRARY_PATH is where the program also finds
# libraries that it loads by name. Two filters of Google Test name cases that are left out under a
# sanitizer: they cannot run there, or they would run for long. Under a sanitizer, one of n cases
# runs.
function(fpdt_test name)
  cmake_parse_arguments(arg "TOGETHER" "LIBRARY_PATH;NOT_SANITIZED;SLOW_SANITIZED;SHARE_SANITIZED"
    "SOURCES;USES;LABELS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  fpdt_test_options(${name})
  target_link_libraries(${name} PRIVATE ${arg_USES} GTest::gtest_main)
  set(left_out ${arg_NOT_SANITIZED} ${arg_SLOW_SANITIZED})
  if(FPDT_LEAVE_UNITS AND arg_LABELS STREQUAL "unit" AND NOT left_out)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    return()
  endif()
  if("gpu" IN_LIST arg_LABELS)
    add_dependencies(gpu_tests ${name})
    if(NOT FPDT_GPU_TESTS)
      return()
    endif()
  endif()
  set(path)
  if(arg_LIBRARY_PATH)
    set(path ENVIRONMENT_MODIFICATION LD_LIBRARY_PATH=path_list_append:${arg_LIBRARY_PATH})
  endif()
  if(FPDT_SANITIZE AND left_out)
    list(JOIN left_out ":" left_out)
    set(filter "-${left_out}")
  else()
    set(filter "*")
  endif()
  if(FPDT_QUICK AND ("unit" IN_LIST arg_LABELS OR arg_TOGETHER))
    add_test(NAME ${name} COMMAND ${name} --gtest_filter=${filter})
    # Those with threads train: they take longest, and begin first where no run has said so.
    set(cost 10)
    if("threads" IN_LIST arg_LABELS)
      set(cost 20)
    endif()
    set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" COST ${cost} ${path})
    if(FPDT_SANITIZE AND arg_SHARE_SANITIZED)
      # Not the same ones under both sanitizers.
      set(shard 0)
      if(FPDT_SANITIZE MATCHES thread)
        set(shard 3)
      endif()
      set_tests_properties(${name} PROPERTIES
        ENVIRONMENT "GTEST_TOTAL_SHARDS=${arg_SHARE_SANITIZED};GTEST_SHARD_INDEX=${shard}")
    endif()
  else()
    # The separators of the list must survive the three scripts that it is written through.
    string(REPLACE ";" [[\\\\\\\;]] labels "${arg_LABELS}")
    gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST TEST_FILTER "${filter}"
      PROPERTIES LABELS "${labels}" ${path})
  endif()
  if("unit" IN_LIST arg_LABELS OR "apps" IN_LIST arg_LABELS)
    add_dependencies(asan_tests ${name})
  endif()
  if("threads" IN_LIST arg_LABELS)
    add_dependencies(threads_tests ${name})
  endif()
endfunction()

# fpdt_test_cases(name SOURCES ... USES ...): cases that several programs link.
function(fpdt_test_cases name)
  cmake_parse_arguments(arg "" "" "SOURCES;USES" ${ARGN})
  add_library(${name} OBJECT ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)  # built with its programs
  fpdt_test_options(${name})
  target_link_libraries(${name} PUBLIC ${arg_USES} GTest::gtest)
endfunction()

function(fpdt_test_options name)
  target_compile_features(${name} PRIVATE cxx_std_20)
  target_link_libraries(${name} PRIVATE fpdt_options)
  target_compile_definitions(${name} PRIVATE FPDT_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  set_target_properties(${name} PROPERTIES CXX_EXTENSIONS OFF)
  target_compile_options(${name} PRIVATE ${FPDT_COLD_FLAGS})
  if(FPDT_SANITIZE)
    # These checks would double the time that tests take to compile: most of their code is
    # expectations. ASan still checks every access to memory.
    target_compile_options(${name} PRIVATE -fno-sanitize=undefined
      -fno-sanitize-address-use-after-scope)
  endif()
endfunction()
