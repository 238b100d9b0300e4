// Remembers per thread what was allowed: there are a few dozen kernels, and most threads have one
// device.
#include "fpdt/cuda/shared_memory.h"

#include <cuda_runtime_api.h>
#include <map>
#include <utility>

#include "fpdt/cuda/status.h"

namespace fpdt::cuda {

void allow_shared_memory(const void* kernel, std::size_t bytes) {
  static thread_local std::map<std::pair<int, const void*>, std::size_t> allowed;
  int device = 0;
  check(cudaGetDevice(&device), "the current GPU");
  std::size_t& most = allowed[{device, kernel}];
  if (bytes <= most) return;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes)),
        "shared memory of a kernel");
  most = bytes;
}

}  // namespace fpdt::cuda
