// Lets kernels use more shared memory than a block gets by default.
#pragma once

#include <cstddef>

namespace fpdt::cuda {

// Allows blocks of the kernel `bytes` of shared memory on the current device. Asks the runtime
// once: later calls of the thread for that device, with as many bytes or fewer, only look into a
// table.
void allow_shared_memory(const void* kernel, std::size_t bytes);

// The most that a block may ask for on the current device.
std::size_t shared_memory_most();
// From now on no more than that, on all devices: tests run what smaller GPUs run.
void limit_shared_memory(std::size_t bytes);

}  // namespace fpdt::cuda
