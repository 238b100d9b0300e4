// A table of libraries without functions, for programs that replace cuDNN.
#include "fpdt/cuda/libraries.h"

namespace fpdt::cuda {

const Cudnn& cudnn() {
  static const Cudnn none{.library = {},
                          .cudnnDestroy = [](cudnnHandle_t) { return CUDNN_STATUS_SUCCESS; }};
  return none;
}

}  // namespace fpdt::cuda
