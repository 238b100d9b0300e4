// Remembers per thread what was allowed: there are a few dozen kernels, and most threads have one
// device.
#include "fpdt/cuda/shared_memory.h"

#include <algorithm>
#include <atomic>
#include <cuda_runtime_api.h>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "fpdt/cuda/status.h"

namespace fpdt::cuda {
namespace {

std::atomic<std::size_t> limit = std::numeric_limits<std::size_t>::max();

// The most that a block may have on a device.
std::size_t most_on(int device) {
  static thread_local std::map<int, std::size_t> known;
  const auto [most, fresh] = known.try_emplace(device, 0);
  if (fresh) {
    int bytes = 0;
    check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
          "an attribute of the GPU");
    most->second = static_cast<std::size_t>(bytes);
  }
  return most->second;
}

}  // namespace

void allow_shared_memory(const void* kernel) {
  static thread_local std::set<std::pair<int, const void*>> allowed;
  int device = 0;
  check(cudaGetDevice(&device), "the current GPU");
  if (allowed.contains({device, kernel})) return;
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, kernel), "attributes of a kernel");
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(most_on(device) - attributes.sharedSizeBytes)),
        "shared memory of a kernel");
  allowed.insert({device, kernel});
}

std::size_t shared_memory_most() {
  int device = 0;
  check(cudaGetDevice(&device), "the current GPU");
  return std::min<std::size_t>(most_on(device), limit);
}

void limit_shared_memory(std::size_t bytes) { limit = bytes; }

}  // namespace fpdt::cuda
