// Memory and order of the device under test, for tests that call functions of the GPU runtime
// themselves: each program that has such tests defines these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "fpdt/cuda/frame.h"

namespace fpdt {

using DeviceBytes = std::unique_ptr<std::byte, void (*)(std::byte*)>;

// Memory that kernels reach, from a multiple of 256 bytes on.
DeviceBytes device_memory(std::int64_t bytes);
void upload(std::byte* to, std::span<const std::byte> from);
void download(std::span<std::byte> to, const std::byte* from);

// Where kernels are launched. `variant` must not matter to a single bit: threads in another order.
cuda::Stream device_stream(int variant);
// Waits until all that was launched is done.
void synchronise_device();

// Of a tile that says something of the device's speed; on an emulator, of the smallest.
std::int64_t rows_of_experiments();

}  // namespace fpdt
