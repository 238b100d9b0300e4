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

  // Begins the next call of a block.
  void begin(std::int32_t block);
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
    std::size_t begun = 0;         // so far, with the running one
    std::vector<Position> clocks;  // [call mod calls][op][lane]
  };
  [[nodiscard]] Position* clock(Kept& block, std::size_t call, std::size_t op) const {
    return &block.clocks[(call % block.calls * block.ops + op) * lanes_.size()];
  }

  std::vector<std::vector<Position>> lanes_;  // [lane][lane]
  std::vector<Kept> blocks_;
  std::int32_t running_ = -1;
};

}  // namespace fpdt
