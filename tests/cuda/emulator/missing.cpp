// Kernels that are still to be written.
#include <stdexcept>

#include "fpdt/cuda/kernels.h"

namespace fpdt::cuda {
#define MISSING(Op)                                               \
  __attribute__((weak)) void execute(const Op&, const Frame&) {   \
    throw std::logic_error("this kernel is still to be written"); \
  }
}  // namespace fpdt::cuda
