// Vector clocks of a walk over calls: which ops are known to be complete when an op runs.
//
// A clock has a position for each lane, -1 before the first op. A lane has the clock of its latest
// op. The clock of an op is kept for as many calls of its block as edges reach back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fpdt/schedule/expand.h"

namespace fpdt {

class CallClocks {
 public:
  using Position = std::int32_t;  // of an op on its lane within the walk

  // `calls_back`: the most calls that an edge to an op of each block reaches back. The program must
  // outlive the clocks.
  CallClocks(const Program& program, const std::vector<std::int32_t>& calls_back);

  void begin(const Call& call);
  // The lane waits for an op, if there is such a call.
  void wait(std::int32_t lane, const After& after);
  // The running call's op is at a position of the lane.
  void complete(std::int32_t lane, std::size_t op, Position position);

  [[nodiscard]] const Position* of_lane(std::int32_t lane) const {
    return lanes_[index(lane)].data();
  }

 private:
  struct Kept {
    std::size_t ops = 0;
    std::size_t calls = 1;         // that are kept
    std::vector<Position> clocks;  // [call mod calls][op][lane]
  };
  // Of the op in the call with that number among those of its block.
  [[nodiscard]] Position* clock(std::int32_t block, std::int64_t call, std::int32_t op) {
    Kept& kept = blocks_[index(block)];
    return &kept.clocks[(index(call) % kept.calls * kept.ops + index(op)) * lanes_.size()];
  }

  std::vector<std::vector<Position>> lanes_;  // [lane][lane]
  std::vector<Kept> blocks_;
  RecentCalls recent_;
  std::int32_t running_ = -1;  // the block
};

}  // namespace fpdt
