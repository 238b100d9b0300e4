// Expands blocks and calls.
#include "fpdt/schedule/expand.h"

#include <algorithm>
#include <array>

#include "fpdt/base/assert.h"

namespace fpdt {

void ProgramBuilder::begin_block() {
  blocks_.emplace_back();
  first_use_.emplace_back();
}

void ProgramBuilder::add(const Lane& lane, const Op* op) {
  PlainBlock& block = blocks_.back();
  first_use_.back().push_back(block.uses.size());
  block.ops.push_back({op, lane_number(lane), 0, {}, {}});
}

void ProgramBuilder::use(const Operand& operand, Access access, std::int64_t rows) {
  blocks_.back().uses.push_back(
      {operand.buffer, anchor_of(operand), operand.version.offset, operand.row_first,
       operand.rows < 0 ? rows - operand.row_first : operand.rows, access});
}

std::int32_t ProgramBuilder::lane_number(const Lane& lane) {
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i] == lane) return static_cast<std::int32_t>(i);
  }
  lanes_.push_back(lane);
  return static_cast<std::int32_t>(lanes_.size() - 1);
}

std::int32_t ProgramBuilder::anchor_of(const Operand& operand) {
  if (operand.version.relative) return operand.buffer;
  Version version = operand.version;
  version.offset = 0;
  if (latest_.size() <= index(operand.buffer)) latest_.resize(index(operand.buffer) + 1, 0);
  std::int32_t& latest = latest_[index(operand.buffer)];
  if (latest < 0 && anchors_[index(-1 - latest)] == version) return latest;
  const auto [place, fresh] =
      numbers_.try_emplace({version.layer, version.micro_batch, version.segment, version.place},
                           static_cast<std::int32_t>(-1 - std::ssize(anchors_)));
  if (fresh) anchors_.push_back(version);
  return latest = place->second;
}

Program ProgramBuilder::finish(const Schedule& schedule) {
  Program made;
  made.schedule = &schedule;
  made.lanes = lanes_;
  std::sort(made.lanes.begin(), made.lanes.end());
  std::vector<std::int32_t> number;  // of each lane
  for (const Lane& lane : lanes_) {
    const auto place = std::lower_bound(made.lanes.begin(), made.lanes.end(), lane);
    number.push_back(static_cast<std::int32_t>(place - made.lanes.begin()));
  }
  const std::size_t buffers = schedule.buffers.size();
  made.anchors.assign(buffers, Version{});
  made.anchors.insert(made.anchors.end(), anchors_.begin(), anchors_.end());
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    PlainBlock& block = blocks_[b];
    for (PlainUse& use : block.uses) {
      if (use.anchor >= 0) continue;
      use.anchor = static_cast<std::int32_t>(buffers) - 1 - use.anchor;
      if (block.anchors.empty() || block.anchors.back() != use.anchor) {
        block.anchors.push_back(use.anchor);
      }
    }
    std::sort(block.anchors.begin(), block.anchors.end());
    block.anchors.erase(std::unique(block.anchors.begin(), block.anchors.end()),
                        block.anchors.end());
    block.advance.assign(buffers, 0);
    for (const auto& [buffer, n] : schedule.blocks[b].advance) block.advance[index(buffer)] = n;
    block.ops_on_lane.assign(lanes_.size(), 0);
    first_use_[b].push_back(block.uses.size());
    for (std::size_t i = 0; i < block.ops.size(); ++i) {
      PlainOp& op = block.ops[i];
      op.lane = number[index(op.lane)];
      op.lane_position = block.ops_on_lane[index(op.lane)]++;
      const std::size_t first = first_use_[b][i];
      op.uses = std::span(block.uses).subspan(first, first_use_[b][i + 1] - first);
    }
  }
  made.blocks = std::move(blocks_);
  return made;
}

namespace {

ProgramBuilder flattened(const Schedule& schedule) {
  ProgramBuilder builder;
  for (const Block& block : schedule.blocks) {
    builder.begin_block();
    for (const Op& op : block.ops) {
      builder.add(op.lane, &op);
      for_each_operand(op.body, [&](std::string_view, const Operand& operand, Access access) {
        builder.use(operand, access, schedule.buffers[index(operand.buffer)].rows());
      });
    }
  }
  return builder;
}

}  // namespace

Program::Program(const Schedule& source) : Program(flattened(source).finish(source)) {
  set_edges([&](std::size_t block, std::size_t op) -> const std::vector<After>& {
    return source.blocks[block].ops[op].after;
  });
}

void Program::find_calls_back() {
  for (PlainBlock& block : blocks) block.calls_back = 0;
  for (const PlainBlock& block : blocks) {
    for (const After& after : block.after) {
      std::int32_t& back = blocks[index(after.block)].calls_back;
      back = std::max(back, after.calls_back);
    }
  }
}

std::vector<std::int32_t> Program::calls_back() const {
  std::vector<std::int32_t> all;
  for (const PlainBlock& block : blocks) all.push_back(block.calls_back);
  return all;
}

RecentCalls::RecentCalls(const std::vector<std::int32_t>& calls_back)
    : calls_(calls_back.size(), 0) {
  for (const std::int32_t back : calls_back) layers_.emplace_back(index(back) + 1);
}

void RecentCalls::begin(const Call& call) {
  running_ = call;
  std::vector<std::int32_t>& layers = layers_[index(call.block)];
  layers[index(calls_[index(call.block)]++) % layers.size()] = call.layer;
}

std::int64_t RecentCalls::awaited(const After& after) const {
  FPDT_ASSERT(after.calls_back > 0 || after.block == running_.block);
  const std::vector<std::int32_t>& layers = layers_[index(after.block)];
  const std::int64_t earlier = calls_[index(after.block)] - (after.block == running_.block ? 1 : 0);
  return awaited_call(after, earlier, running_.layer,
                      [&](std::int64_t number) { return layers[index(number) % layers.size()]; });
}

Expansion::Expansion(const Program& program)
    : program_(&program),
      recent_(program.calls_back()),
      anchors_(program.anchors.size(), 0),
      advance_pending_(program.schedule->buffers.size(), 0),
      lane_begin_(program.lanes.size(), 0),
      lane_end_(program.lanes.size(), 0) {
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
  recent_.begin(call);
  const std::int64_t slot = recent_.latest(call.block) % (block.calls_back + 1);
  std::copy(
      lane_begin_.begin(), lane_begin_.end(),
      history_[index(call.block)].begin() + slot * static_cast<std::int64_t>(lane_begin_.size()));
}

LanePosition Expansion::position(const After& after) const {
  const std::int64_t number = recent_.awaited(after);
  if (number < 0) return -1;
  const PlainBlock& block = program_->blocks[index(after.block)];
  const std::int64_t slot = number % (block.calls_back + 1);
  const PlainOp& op = block.ops[index(after.op)];
  return history_[index(after.block)][index(slot) * lane_begin_.size() + index(op.lane)] +
         op.lane_position;
}

}  // namespace fpdt
