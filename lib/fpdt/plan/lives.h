// Lives of buffers: which pairs the schedule leaves unordered, and how many bytes are alive at
// once.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "fpdt/base/units.h"
#include "fpdt/schedule/expand.h"
#include "fpdt/schedule/schedule.h"

namespace fpdt {

// Pairs of buffers that may not share bytes: a life (a version, from its first write to its last
// access) of one is not ordered with a life of the other. State, input and output share with
// nothing.
class Conflicts {
 public:
  explicit Conflicts(const Program& program);

  [[nodiscard]] bool apart(std::size_t a, std::size_t b) const {
    return apart_[a * count_ + b] != 0;
  }
  [[nodiscard]] bool shares(std::size_t buffer) const { return shares_[buffer]; }

 private:
  std::size_t count_;
  std::vector<std::uint8_t> apart_;  // [buffer][buffer]
  std::vector<bool> shares_;
};

// The most bytes of slots alive at one moment of the train program in issue order, by MemorySpace.
// States, inputs and outputs are always alive.
std::array<Bytes, 3> live_bytes(const Program& program);

}  // namespace fpdt
