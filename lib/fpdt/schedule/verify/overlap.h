// Which slots share bytes. Internal to the verifier.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "fpdt/schedule/schedule.h"

namespace fpdt {

// Slots are numbered through all buffers in order. other[begin[s]] to other[begin[s + 1] - 1] share
// bytes with slot s.
struct Overlaps {
  std::vector<std::size_t> begin;
  std::vector<std::size_t> other;
};

// Empty when there are too many pairs to hold. Buffers without an offset share with none.
std::optional<Overlaps> overlaps_of(const Schedule& schedule);

}  // namespace fpdt
