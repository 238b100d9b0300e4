// Joins and keeps clocks.
#include "fpdt/schedule/call_clocks.h"

#include <algorithm>

namespace fpdt {

CallClocks::CallClocks(const Program& program, const std::vector<std::int32_t>& calls_back)
    : lanes_(program.lanes.size(), std::vector<Position>(program.lanes.size(), -1)),
      recent_(calls_back) {
  for (std::size_t b = 0; b < program.blocks.size(); ++b) {
    Kept& block = blocks_.emplace_back();
    block.ops = program.blocks[b].ops.size();
    block.calls = index(calls_back[b]) + 1;
    block.clocks.assign(block.calls * block.ops * lanes_.size(), -1);
  }
}

void CallClocks::begin(const Call& call) {
  running_ = call.block;
  recent_.begin(call);
}

void CallClocks::wait(std::int32_t lane, const After& after) {
  const std::int64_t call = recent_.awaited(after);
  if (call < 0) return;
  const Position* const other = clock(after.block, call, after.op);
  std::vector<Position>& own = lanes_[index(lane)];
  for (std::size_t i = 0; i < own.size(); ++i) own[i] = std::max(own[i], other[i]);
}

void CallClocks::complete(std::int32_t lane, std::size_t op, Position position) {
  std::vector<Position>& own = lanes_[index(lane)];
  own[index(lane)] = position;
  std::copy(own.begin(), own.end(),
            clock(running_, recent_.latest(running_), static_cast<std::int32_t>(op)));
}

}  // namespace fpdt
