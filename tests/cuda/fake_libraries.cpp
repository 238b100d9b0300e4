// NVIDIA's libraries where none is loaded: versions, and nothing else.
#include "fpdt/cuda/libraries.h"

namespace fpdt::cuda {

const CublasLt& cublaslt() {
  static const CublasLt table{.library = {},
                              .cublasLtGetVersion = [] { return std::size_t{CUBLAS_VERSION}; }};
  return table;
}

const Cudnn& cudnn() {
  static const Cudnn table{.library = {}, .cudnnGetVersion = [] { return std::size_t{91002}; }};
  return table;
}

}  // namespace fpdt::cuda
