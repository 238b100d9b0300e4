// For programs that have something else in place of cuDNN: its table, empty.
#include "fpdt/cuda/libraries.h"

namespace fpdt::cuda {

const Cudnn& cudnn() {
  static const Cudnn none{};
  return none;
}

}  // namespace fpdt::cuda
