// The emulator as the device under test: its memory is this process's.
#include <cstdlib>
#include <cstring>

#include "fpdt/base/math.h"

#include "device_under_test.h"
#include "simt.h"

namespace fpdt {

DeviceBytes device_memory(std::int64_t bytes) {
  const auto room = static_cast<std::size_t>(round_up(bytes, 256));
  return {static_cast<std::byte*>(std::aligned_alloc(256, room)),
          [](std::byte* memory) { std::free(memory); }};
}
void upload(std::byte* to, std::span<const std::byte> from) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}
void download(std::span<std::byte> to, const std::byte* from) {
  if (!to.empty()) std::memcpy(to.data(), from, to.size());
}
cuda::Stream device_stream(int variant) {
  emulator::set({.seed = static_cast<std::uint64_t>(variant), .last_blocks = -1});
  return nullptr;
}
void limit_shared_memory(std::size_t bytes) { emulator::set_shared_memory_most(bytes); }
void synchronise_device() {}

std::int64_t rows_of_experiments() { return 128; }

}  // namespace fpdt
