// CUDA runtime error codes as exceptions of this project.
#pragma once

#include <cuda_runtime_api.h>
#include <string_view>

namespace fpdt::cuda {

// Does nothing on success. Throws MemoryError when memory ran out, InputError for what a user can
// fix (no driver, no device, a driver that is too old), else Error with exit code `internal`. The
// message holds `what` and CUDA's own words.
void check(cudaError_t status, std::string_view what);

}  // namespace fpdt::cuda
