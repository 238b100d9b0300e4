// States of the lanes seen before.
//
// A state is all that the future depends on: for every lane its current op, the call of that op,
// and the remaining work. Two states that are equal except that their calls differ by D have the
// same future as long as the calls repeat with period D. A lane may also stay at the same call when
// it is far ahead and blocked: it does not matter until the op that it waits for is near.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace fpdt {

struct LaneView {
  std::int32_t call = 0;        // of its current op; the number of calls when the lane has ended
  std::int32_t step = 0;        // index among the block's steps on this lane
  std::int64_t remaining = -1;  // work; -1: not started
  bool operator==(const LaneView&) const = default;
};

struct LaneState {
  std::int64_t now = 0;
  std::int32_t oldest = 0;  // the first call that is not complete
  std::vector<LaneView> lanes;
  std::vector<std::int64_t> busy;  // sums until now; not compared
};

class Repeats {
 public:
  // Stores the state; returns the index of the latest earlier one that may equal it, or -1.
  std::int64_t add(LaneState state, std::int32_t block);
  [[nodiscard]] const LaneState& state(std::int64_t i) const {
    return kept_[static_cast<std::size_t>(i)].state;
  }
  // The next earlier state that may equal it, or -1.
  [[nodiscard]] std::int64_t earlier(std::int64_t i) const {
    return kept_[static_cast<std::size_t>(i)].earlier;
  }

 private:
  struct Kept {
    LaneState state;
    std::int64_t earlier = -1;
  };
  std::vector<Kept> kept_;
  std::unordered_map<std::uint64_t, std::int64_t> latest_;  // by hash
};

}  // namespace fpdt
