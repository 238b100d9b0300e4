// An empty table of libraries, for programs that replace cuDNN.
#include "fpdt/cuda/libraries.h"

namespace fpdt::cuda {

const Cudnn& cudnn() {
  static const Cudnn none{};
  return none;
}

}  // namespace fpdt::cuda
