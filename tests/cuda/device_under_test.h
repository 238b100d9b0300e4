// Memory and launches on the device under test, for tests that call functions of the GPU runtime
// directly. Each program that has such tests defines these functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "fpdt/cuda/frame.h"

namespace fpdt {

using DeviceBytes = std::unique_ptr<std::byte, void (*)(std::byte*)>;

// Memory that kernels can access; it begins at a multiple of 256 bytes.
DeviceBytes device_memory(std::int64_t bytes);
void upload(std::byte* to, std::span<const std::byte> from);
void download(std::span<std::byte> to, const std::byte* from);

// Where kernels are launched. `variant` selects another order of threads, which must not change a
// single bit.
cuda::Stream device_stream(int variant);
// Blocks ask for no more shared memory from now on, as on smaller GPUs.
void limit_shared_memory(std::size_t bytes);
// Waits until all launched work is done.
void synchronise_device();

// Rows of a tile that is large enough to show the device's speed; on an emulator, of the smallest
// tile.
std::int64_t rows_of_experiments();

}  // namespace fpdt
