// Runs the tests of kernel_case.h on the CPU's kernels, with pools of several sizes.
#include "fpdt/cpu/kernels.h"

#include "kernel_case.h"

namespace fpdt {

void run_kernel(const Body& body, std::span<const View> views, std::int64_t rank, int variant) {
  Pool pool(variant + 1);
  Kernels kernels(pool);
  kernels.run(body, views, rank);
}

}  // namespace fpdt
