# Whether the GPU backend is built: FPDT_WITH_CUDA says so, with FPDT_CUDA_WHY when it is not.
#
# AUTO builds it where nvcc and the headers of cuBLASLt and cuDNN 9 are found; ON stops without them;
# a sanitizer's build leaves it out (the emulator of tests/cuda has the kernels). Neither a GPU nor
# the libraries themselves are needed to build.
set(FPDT_CUDA AUTO CACHE STRING "Build the GPU backend: AUTO, ON or OFF")
set_property(CACHE FPDT_CUDA PROPERTY STRINGS AUTO ON OFF)
# Ampere and Ada run the first, Hopper the second; the driver compiles the third for what came after.
set(FPDT_CUDA_ARCHITECTURES 80-real 90a-real 90-virtual CACHE STRING "GPUs to build for, as CMAKE_CUDA_ARCHITECTURES")
option(FPDT_GPU_TESTS "Register the tests that need a GPU" OFF)

set(FPDT_WITH_CUDA OFF)
if(FPDT_CUDA STREQUAL "OFF")
  set(FPDT_CUDA_WHY "FPDT_CUDA=OFF")
elseif(FPDT_SANITIZE AND NOT FPDT_CUDA STREQUAL "ON")
  set(FPDT_CUDA_WHY "a sanitizer is on")
else()
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    set(FPDT_CUDA_WHY "nvcc was not found: put it on PATH or set CUDACXX")
  else()
    # FindCUDAToolkit looks beside the compiler.
    find_package(CUDAToolkit 12.4 QUIET)
    if(CUDAToolkit_FOUND)
      include(device_library)
      fpdt_find_wheels(wheels)
      fpdt_device_library(CUBLASLT HEADER cublasLt.h VERSION_HEADER cublas_api.h
        VERSION_PREFIX CUBLAS_VER_ FILE libcublasLt.so.${CUDAToolkit_VERSION_MAJOR} WHEELS ${wheels})
      fpdt_device_library(CUDNN HEADER cudnn_backend.h VERSION_HEADER cudnn_version.h
        VERSION_PREFIX CUDNN_ FILE libcudnn.so.9 WHEELS ${wheels})
    endif()
    if(NOT CUDAToolkit_FOUND)
      set(FPDT_CUDA_WHY "no CUDA toolkit from 12.4 on beside ${CMAKE_CUDA_COMPILER}")
    elseif(NOT CUBLASLT_INCLUDE_DIR)
      set(FPDT_CUDA_WHY "no cublasLt.h beside nvcc or in a wheel: CUBLASLT_ROOT may name its place")
    elseif(NOT CUBLASLT_VERSION MATCHES "^${CUDAToolkit_VERSION_MAJOR}[.]")
      set(FPDT_CUDA_WHY "${CUBLASLT_INCLUDE_DIR}/cublasLt.h is ${CUBLASLT_VERSION}, nvcc ${CUDAToolkit_VERSION}")
    elseif(NOT CUDNN_INCLUDE_DIR OR CUDNN_VERSION VERSION_LESS 9.10)
      set(FPDT_CUDA_WHY "no headers of cuDNN from 9.10.2 on: CUDNN_ROOT may name their place")
    else()
      set(FPDT_WITH_CUDA ON)
    endif()
  endif()
endif()
if(FPDT_WITH_CUDA)
  set(CMAKE_CUDA_ARCHITECTURES ${FPDT_CUDA_ARCHITECTURES})
  if(FPDT_CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${FPDT_CCACHE})
  endif()
  enable_language(CUDA)
  # The headers, for whoever includes those of runtime/fpdt/cuda.
  add_library(fpdt_device_headers INTERFACE)
  target_include_directories(fpdt_device_headers SYSTEM INTERFACE
    ${CUDAToolkit_INCLUDE_DIRS} ${CUBLASLT_INCLUDE_DIR} ${CUDNN_INCLUDE_DIR})
  message(STATUS "GPU backend: CUDA ${CUDAToolkit_VERSION}, cuBLASLt ${CUBLASLT_VERSION}, cuDNN ${CUDNN_VERSION}, for ${CMAKE_CUDA_ARCHITECTURES}")
elseif(FPDT_CUDA STREQUAL "ON")
  message(FATAL_ERROR "FPDT_CUDA=ON: ${FPDT_CUDA_WHY}")
else()
  message(STATUS "GPU backend: not built (${FPDT_CUDA_WHY})")
endif()
