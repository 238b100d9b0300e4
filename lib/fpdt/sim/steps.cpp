// Computes the steps of blocks and the positions of calls.
#include "fpdt/sim/steps.h"

#include <algorithm>

#include "fpdt/base/assert.h"
#include "fpdt/sim/clock.h"

namespace fpdt {
namespace {

// The index of `base` in the block's list; appends it if it is new.
std::int32_t base_number(std::vector<BlockSteps::Base>& bases, const BlockSteps::Base& base) {
  const auto found = std::find(bases.begin(), bases.end(), base);
  const auto number = static_cast<std::int32_t>(found - bases.begin());
  if (found == bases.end()) bases.push_back(base);
  return number;
}

}  // namespace

std::vector<BlockSteps> steps_of(const Program& program,
                                 const std::vector<std::vector<std::int64_t>>& ticks) {
  std::vector<BlockSteps> all(program.blocks.size());
  for (std::size_t b = 0; b < all.size(); ++b) {
    const PlainBlock& block = program.blocks[b];
    BlockSteps& steps = all[b];
    steps.lanes.resize(program.lanes.size());
    for (std::size_t i = 0; i < block.ops.size(); ++i) {
      const PlainOp& op = block.ops[i];
      FPDT_ASSERT(ticks[b][i] > 0 && ticks[b][i] <= kMostTicks);
      Step step;
      step.work = ticks[b][i] * kWorkPerTick;
      step.op = static_cast<std::int32_t>(i);
      step.kind = static_cast<std::int32_t>(op.op->body.index());
      step.wait_begin = static_cast<std::int32_t>(steps.waits.size());
      for (const After& after : op.after) {
        const PlainOp& awaited = program.blocks[index(after.block)].ops[index(after.op)];
        const std::int32_t base =
            base_number(steps.bases, {after.block, after.calls_back, after.of_layer, awaited.lane});
        steps.waits.push_back({base, awaited.lane, awaited.lane_position});
      }
      step.wait_end = static_cast<std::int32_t>(steps.waits.size());
      steps.lanes[index(op.lane)].push_back(step);
    }
  }
  return all;
}

CallTable::CallTable(const Program& program, const std::vector<Call>& calls)
    : lanes_(program.lanes.size()), calls_of_(program.blocks.size()) {
  begins_.assign(lanes_, 0);
  begins_.reserve((calls.size() + 1) * lanes_);
  for (const Call& call : calls) {
    calls_of_[index(call.block)].push_back(size());
    blocks_.push_back(call.block);
    layers_.push_back(call.layer);
    for (std::size_t lane = 0; lane < lanes_; ++lane) {
      begins_.push_back(begins_[begins_.size() - lanes_] +
                        program.blocks[index(call.block)].ops_on_lane[lane]);
    }
  }
}

std::int32_t CallTable::call_at(std::int32_t lane, LanePosition position) const {
  std::int32_t low = 0;  // the last call that begins at or before the position
  for (std::int32_t high = size(); high - low > 1;) {
    const std::int32_t middle = low + (high - low) / 2;
    (begin(middle, lane) <= position ? low : high) = middle;
  }
  return low;
}

std::int32_t CallTable::awaited(const BlockSteps::Base& base, std::int32_t call) const {
  if (base.calls_back == 0) return call;
  const std::vector<std::int32_t>& of_block = calls_of_[at(base.block)];
  const auto earlier = std::lower_bound(of_block.begin(), of_block.end(), call) - of_block.begin();
  const After after{base.block, 0, base.calls_back, base.of_layer};
  const std::int64_t number = awaited_call(after, earlier, layers_[at(call)], [&](std::int64_t n) {
    return layers_[at(of_block[index(n)])];
  });
  return number < 0 ? -1 : of_block[index(number)];
}

}  // namespace fpdt
