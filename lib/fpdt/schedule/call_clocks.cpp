// Joins and keeps clocks.
#include "fpdt/schedule/call_clocks.h"

#include <algorithm>

namespace fpdt {

CallClocks::CallClocks(const Program& program, const std::vector<std::int32_t>& calls_back)
    : lanes_(program.lanes.size(), std::vector<Position>(program.lanes.size(), -1)) {
  for (std::size_t b = 0; b < program.blocks.size(); ++b) {
    Kept& block = blocks_.emplace_back();
    block.ops = program.blocks[b].ops.size();
    block.calls = index(calls_back[b]) + 1;
    block.clocks.assign(block.calls * block.ops * lanes_.size(), -1);
  }
}

void CallClocks::begin(std::int32_t block) {
  running_ = block;
  ++blocks_[index(block)].begun;
}

void CallClocks::wait(std::int32_t lane, const After& after) {
  Kept& block = blocks_[index(after.block)];
  const std::size_t back = index(after.calls_back) + (after.block == running_ ? 1 : 0);
  if (back > block.begun) return;
  const Position* const other = clock(block, block.begun - back, index(after.op));
  std::vector<Position>& own = lanes_[index(lane)];
  for (std::size_t i = 0; i < own.size(); ++i) own[i] = std::max(own[i], other[i]);
}

void CallClocks::complete(std::int32_t lane, std::size_t op, Position position) {
  std::vector<Position>& own = lanes_[index(lane)];
  own[index(lane)] = position;
  Kept& block = blocks_[index(running_)];
  std::copy(own.begin(), own.end(), clock(block, block.begun - 1, op));
}

}  // namespace fpdt
