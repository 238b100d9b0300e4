// Expands blocks and calls.
#include "fpdt/schedule/expand.h"

#include <algorithm>
#include <array>
#include <map>

#include "fpdt/base/assert.h"

namespace fpdt {
namespace {

std::vector<Lane> lanes_of(const Schedule& schedule) {
  std::vector<Lane> lanes;
  for (const Block& block : schedule.blocks) {
    for (const Op& op : block.ops) {
      const auto place = std::lower_bound(lanes.begin(), lanes.end(), op.lane);
      if (place == lanes.end() || *place != op.lane) lanes.insert(place, op.lane);
    }
  }
  return lanes;
}

using Arguments = std::array<std::int64_t, kArguments.size()>;
Arguments arguments_of(const Version& version) {
  return {version.layer, version.micro_batch, version.segment, version.place};
}

// Numbers the anchors of operands.
class Anchors {
 public:
  Anchors(std::size_t buffers, std::vector<Version>& list)
      : list_(list), latest_(buffers, -1), first_(buffers) {
    list_.assign(buffers, Version{});
  }

  std::int32_t number(const Operand& operand) {
    if (operand.version.relative) return operand.buffer;
    Version version = operand.version;
    version.offset = 0;
    std::int32_t& latest = latest_[index(operand.buffer)];
    if (latest >= 0 && list_[index(latest)] == version) return latest;
    const auto [place, fresh] =
        numbers_.try_emplace(arguments_of(version), static_cast<std::int32_t>(list_.size()));
    if (fresh) list_.push_back(version);
    return latest = place->second;
  }

  // The absolute anchors among those of `uses`.
  [[nodiscard]] std::vector<std::int32_t> absolute(const std::vector<PlainUse>& uses) const {
    std::vector<std::int32_t> some;
    for (const PlainUse& use : uses) {
      if (index(use.anchor) < first_ || (!some.empty() && some.back() == use.anchor)) continue;
      some.push_back(use.anchor);
    }
    std::sort(some.begin(), some.end());
    some.erase(std::unique(some.begin(), some.end()), some.end());
    return some;
  }

 private:
  std::vector<Version>& list_;
  std::map<Arguments, std::int32_t> numbers_;  // by coefficients
  std::vector<std::int32_t> latest_;           // of each buffer
  std::size_t first_;
};

void append_uses(const Schedule& schedule, const Op& op, Anchors& anchors,
                 std::vector<PlainUse>& uses) {
  for_each_operand(op.body, [&](std::string_view, const Operand& operand, Access access) {
    const Buffer& buffer = schedule.buffers[index(operand.buffer)];
    const std::int64_t rows = operand.rows < 0 ? buffer.rows() - operand.row_first : operand.rows;
    uses.push_back({operand.buffer, anchors.number(operand), operand.version.offset,
                    operand.row_first, rows, access});
  });
}

PlainBlock flatten(const Schedule& schedule, const Block& block, const std::vector<Lane>& lanes,
                   Anchors& anchors) {
  PlainBlock plain;
  plain.advance.assign(schedule.buffers.size(), 0);
  for (const auto& [buffer, n] : block.advance) plain.advance[index(buffer)] = n;
  plain.ops_on_lane.assign(lanes.size(), 0);
  std::vector<std::size_t> use_begin;
  std::vector<std::size_t> after_begin;
  plain.ops.reserve(block.ops.size());
  plain.uses.reserve(4 * block.ops.size());  // as most ops have
  use_begin.reserve(block.ops.size() + 1);
  after_begin.reserve(block.ops.size() + 1);
  for (const Op& op : block.ops) {
    const auto lane = std::lower_bound(lanes.begin(), lanes.end(), op.lane) - lanes.begin();
    use_begin.push_back(plain.uses.size());
    after_begin.push_back(plain.after.size());
    append_uses(schedule, op, anchors, plain.uses);
    plain.after.insert(plain.after.end(), op.after.begin(), op.after.end());
    plain.ops.push_back(
        {&op, static_cast<std::int32_t>(lane), plain.ops_on_lane[index(lane)]++, {}, {}});
  }
  use_begin.push_back(plain.uses.size());
  after_begin.push_back(plain.after.size());
  for (std::size_t i = 0; i < plain.ops.size(); ++i) {
    plain.ops[i].uses =
        std::span(plain.uses).subspan(use_begin[i], use_begin[i + 1] - use_begin[i]);
    plain.ops[i].after =
        std::span(plain.after).subspan(after_begin[i], after_begin[i + 1] - after_begin[i]);
  }
  plain.anchors = anchors.absolute(plain.uses);
  return plain;
}

}  // namespace

Program::Program(const Schedule& source) : schedule(&source), lanes(lanes_of(source)) {
  Anchors numbers(source.buffers.size(), anchors);
  for (const Block& block : source.blocks) blocks.push_back(flatten(source, block, lanes, numbers));
  for (const PlainBlock& block : blocks) {
    for (const After& after : block.after) {
      std::int32_t& back = blocks[index(after.block)].calls_back;
      back = std::max(back, after.calls_back);
    }
  }
}

Expansion::Expansion(const Program& program)
    : program_(&program),
      anchors_(program.anchors.size(), 0),
      advance_pending_(program.schedule->buffers.size(), 0),
      lane_begin_(program.lanes.size(), 0),
      lane_end_(program.lanes.size(), 0),
      calls_of_(program.blocks.size(), 0) {
  for (const PlainBlock& block : program.blocks) {
    history_.emplace_back(index(block.calls_back + 1) * program.lanes.size(), 0);
  }
}

void Expansion::begin(const Call& call) {
  call_ = call;
  std::copy(advance_pending_.begin(), advance_pending_.end(), anchors_.begin());
  lane_begin_ = lane_end_;
  const PlainBlock& block = program_->blocks[index(call.block)];
  for (const std::int32_t anchor : block.anchors) {
    const Version& v = program_->anchors[index(anchor)];
    anchors_[index(anchor)] = call_part(v, call);
  }
  for (const auto& [buffer, n] : program_->schedule->blocks[index(call.block)].advance) {
    advance_pending_[index(buffer)] += n;
  }
  for (std::size_t lane = 0; lane < lane_end_.size(); ++lane)
    lane_end_[lane] += block.ops_on_lane[lane];
  const std::int64_t ring = block.calls_back + 1;
  const std::int64_t slot = calls_of_[index(call.block)]++ % ring;
  std::copy(
      lane_begin_.begin(), lane_begin_.end(),
      history_[index(call.block)].begin() + slot * static_cast<std::int64_t>(lane_begin_.size()));
}

LanePosition Expansion::position(const After& after) const {
  // Calls of the block so far, in file order. The running call counts as the last.
  const std::int64_t calls = calls_of_[index(after.block)];
  const bool own_block = after.block == call_.block;
  // calls_back 0 is this call; k >= 1 is the k-th last earlier call.
  const std::int64_t number = own_block ? calls - 1 - after.calls_back : calls - after.calls_back;
  if (number < 0) return -1;
  const PlainBlock& block = program_->blocks[index(after.block)];
  FPDT_ASSERT(own_block || after.calls_back > 0);
  const std::int64_t slot = number % (block.calls_back + 1);
  const PlainOp& op = block.ops[index(after.op)];
  return history_[index(after.block)][index(slot) * lane_begin_.size() + index(op.lane)] +
         op.lane_position;
}

}  // namespace fpdt
