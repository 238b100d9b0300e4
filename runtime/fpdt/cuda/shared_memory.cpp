// Remembers per thread what was allowed: a rank's thread has one device and a few dozen kernels.
#include "fpdt/cuda/shared_memory.h"

#include <cuda_runtime_api.h>
#include <map>

#include "fpdt/cuda/status.h"

namespace fpdt::cuda {

void allow_shared_memory(const void* kernel, std::size_t bytes) {
  static thread_local std::map<const void*, std::size_t> allowed;
  std::size_t& most = allowed[kernel];
  if (bytes <= most) return;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes)),
        "shared memory of a kernel");
  most = bytes;
}

}  // namespace fpdt::cuda
