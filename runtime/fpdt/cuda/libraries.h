// NVIDIA's libraries, as this backend calls them. The first call of the function that returns a
// table loads its library. A build needs only the headers.
#pragma once

#include <cstddef>
#include <cublasLt.h>
#include <cudnn_backend.h>
#include <string>

#include "fpdt/runtime/library.h"

namespace fpdt::cuda {

struct CublasLt {
  Library library;
  FPDT_FROM_LIBRARY(cublasLtGetVersion);
  FPDT_FROM_LIBRARY(cublasLtGetStatusName);
  FPDT_FROM_LIBRARY(cublasLtGetStatusString);
  FPDT_FROM_LIBRARY(cublasLtCreate);
  FPDT_FROM_LIBRARY(cublasLtDestroy);
  FPDT_FROM_LIBRARY(cublasLtMatmulDescCreate);
  FPDT_FROM_LIBRARY(cublasLtMatmulDescDestroy);
  FPDT_FROM_LIBRARY(cublasLtMatmulDescSetAttribute);
  FPDT_FROM_LIBRARY(cublasLtMatrixLayoutCreate);
  FPDT_FROM_LIBRARY(cublasLtMatrixLayoutDestroy);
  FPDT_FROM_LIBRARY(cublasLtMatmulPreferenceCreate);
  FPDT_FROM_LIBRARY(cublasLtMatmulPreferenceDestroy);
  FPDT_FROM_LIBRARY(cublasLtMatmulPreferenceSetAttribute);
  FPDT_FROM_LIBRARY(cublasLtMatmulAlgoGetHeuristic);
  FPDT_FROM_LIBRARY(cublasLtMatmul);
};

struct Cudnn {
  Library library;
  FPDT_FROM_LIBRARY(cudnnGetVersion);
  FPDT_FROM_LIBRARY(cudnnGetErrorString);
  FPDT_FROM_LIBRARY(cudnnGetLastErrorString);
  FPDT_FROM_LIBRARY(cudnnCreate);
  FPDT_FROM_LIBRARY(cudnnDestroy);
  FPDT_FROM_LIBRARY(cudnnSetStream);
  FPDT_FROM_LIBRARY(cudnnBackendCreateDescriptor);
  FPDT_FROM_LIBRARY(cudnnBackendDestroyDescriptor);
  FPDT_FROM_LIBRARY(cudnnBackendSetAttribute);
  FPDT_FROM_LIBRARY(cudnnBackendGetAttribute);
  FPDT_FROM_LIBRARY(cudnnBackendFinalize);
  FPDT_FROM_LIBRARY(cudnnBackendExecute);
};

// Throws InputError when the library is missing or has an unsuitable version.
const CublasLt& cublaslt();
const Cudnn& cudnn();

// Throws InputError unless `version`, as cublasLtGetVersion gives it, has the major version that
// this program is built for.
void require_cublaslt(std::size_t version);
// Throws InputError unless `version`, as cudnnGetVersion gives it, is 9.10.2 or a later cuDNN 9.
void require_cudnn(std::size_t version);
// For example 9.19.0 for 91900.
std::string cudnn_version_text(std::size_t version);

}  // namespace fpdt::cuda
