// Computes the address of an operand from its buffer, version and rows.
#include "fpdt/runtime/resolve.h"

#include "fpdt/base/assert.h"

namespace fpdt {

Addresses::Addresses(const Schedule& schedule, const Arenas& arenas) {
  places_.reserve(schedule.buffers.size());
  for (const Buffer& buffer : schedule.buffers) {
    const std::span<std::byte> arena = arenas[static_cast<std::size_t>(buffer.space)];
    FPDT_ASSERT(buffer.offset >= 0);
    FPDT_ASSERT(add(buffer.offset, buffer.bytes().value) <= std::ssize(arena));
    places_.push_back({arena.data() + buffer.offset, buffer.slots, buffer.slot_stride().value,
                       buffer.slot_bytes().value, buffer.row_bytes(), buffer.row_elements(),
                       buffer.dtype});
  }
}

std::span<std::byte> Addresses::slot(BufferIndex buffer, std::int64_t slot) const {
  const Place& place = places_.at(static_cast<std::size_t>(buffer));
  FPDT_ASSERT(slot >= 0 && slot < place.slots);
  return {place.base + slot * place.stride, static_cast<std::size_t>(place.contents)};
}

View Addresses::view(const PlainUse& use, std::int64_t version) const {
  const Place& place = places_[static_cast<std::size_t>(use.buffer)];
  FPDT_ASSERT(version >= 0);
  std::byte* data =
      place.base + (version % place.slots) * place.stride + use.row_first * place.row_bytes;
  return {data, use.rows * place.row_elements, place.dtype, use.access};
}

}  // namespace fpdt
