// Turns operands into addresses.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fpdt/runtime/view.h"
#include "fpdt/schedule/expand.h"

namespace fpdt {

inline constexpr std::array kMemorySpaces{MemorySpace::device, MemorySpace::host_pinned,
                                          MemorySpace::host};

// The memory of every space, indexed by MemorySpace.
using Arenas = std::array<std::span<std::byte>, kMemorySpaces.size()>;

class Addresses {
 public:
  Addresses(const Schedule& schedule, const Arenas& arenas);

  // The bytes of a slot's contents.
  [[nodiscard]] std::span<std::byte> slot(BufferIndex buffer, std::int64_t slot) const;
  // The view of `use` at version `version`.
  [[nodiscard]] View view(const PlainUse& use, std::int64_t version) const;

 private:
  // A buffer's place in memory, with its strides computed.
  struct Place {
    std::byte* base = nullptr;
    std::int64_t slots = 1;
    std::int64_t stride = 0;
    std::int64_t contents = 0;
    std::int64_t row_bytes = 0;
    std::int64_t row_elements = 0;
    Dtype dtype = Dtype::f32;
  };
  std::vector<Place> places_;
};

}  // namespace fpdt
