// Kernels that want more shared memory than a block has without asking.
#pragma once

#include <cstddef>

namespace fpdt::cuda {

// Lets blocks of the kernel have so many bytes on this thread's device. The runtime is asked once:
// a later call of the thread with as many bytes or fewer costs a look into a table.
void allow_shared_memory(const void* kernel, std::size_t bytes);

}  // namespace fpdt::cuda
