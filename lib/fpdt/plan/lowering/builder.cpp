// Appends buffers, blocks, ops and calls to a schedule.
#include "fpdt/plan/lowering/builder.h"

#include <algorithm>
#include <type_traits>
#include <variant>

#include "fpdt/base/assert.h"

namespace fpdt {
namespace {

// Gives the operands of ops new buffers.
struct Renumber : FieldVisitor<Renumber> {
  explicit Renumber(const std::vector<BufferIndex>& to) : now(to) {}
  const std::vector<BufferIndex>& now;

  void read(std::string_view, Operand& operand) const {
    if (operand.present()) operand.buffer = now[index(operand.buffer)];
  }
  void target(std::string_view field, Target& target) const { read(field, target.operand); }
};

}  // namespace

BufferId Builder::declare(Buffer buffer) {
  declared_.push_back(std::move(buffer));
  number_.push_back(-1);
  return static_cast<BufferId>(declared_.size() - 1);
}

BufferIndex Builder::use(BufferId id) {
  BufferIndex& number = number_[index(id)];
  if (number < 0) {
    number = static_cast<BufferIndex>(used_.size());
    used_.push_back(id);
    begun_.push_back(0);
  }
  return number;
}

Schedule& Builder::finish() {
  leave_out_unused();
  for (const BufferId id : used_) schedule.buffers.push_back(declared_[index(id)]);
  return schedule;
}

void Builder::leave_out_unused() {
  std::vector<BufferIndex> now(used_.size(), -1);
  const auto mark = [&](BufferIndex buffer) { now[index(buffer)] = buffer; };
  for (const Block& block : schedule.blocks) {
    for (const Op& op : block.ops) {
      for_each_operand(op.body,
                       [&](std::string_view, const Operand& one, Access) { mark(one.buffer); });
    }
  }
  for (const Feed& feed : schedule.feeds) mark(feed.buffer);
  for (const State& state : schedule.states) mark(state.buffer);
  if (std::find(now.begin(), now.end(), -1) == now.end()) return;
  std::vector<BufferId> ids;
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i] < 0) continue;
    now[i] = static_cast<BufferIndex>(ids.size());
    ids.push_back(used_[i]);
  }
  used_ = std::move(ids);
  for (Block& block : schedule.blocks) {
    std::erase_if(block.advance, [&](const auto& one) { return now[index(one.first)] < 0; });
    for (auto& one : block.advance) one.first = now[index(one.first)];
    for (Op& op : block.ops) {
      std::visit([&](auto& body) { std::decay_t<decltype(body)>::fields(body, Renumber(now)); },
                 op.body);
    }
  }
  for (Feed& feed : schedule.feeds) feed.buffer = now[index(feed.buffer)];
  for (State& state : schedule.states) state.buffer = now[index(state.buffer)];
}

const Buffer& Builder::at(BufferIndex buffer) const {
  return declared_[index(used_[index(buffer)])];
}

void Builder::begin_block(std::string name) {
  schedule.blocks.push_back({std::move(name), {}, {}});
  std::fill(begun_.begin(), begun_.end(), 0);
}

void Builder::end_block() {
  Block& block = schedule.blocks.back();
  for (std::size_t i = 0; i < begun_.size(); ++i) {
    if (begun_[i] > 0) block.advance.push_back({static_cast<BufferIndex>(i), begun_[i]});
  }
}

Operand Builder::next(BufferIndex ring, std::int64_t rows) {
  const std::int64_t n = begun_[index(ring)]++;
  const bool whole = rows < 0 || rows == at(ring).rows();
  return {ring, Version::plus(n), 0, whole ? -1 : rows};
}

std::int64_t Builder::begun(BufferIndex ring) const { return begun_[index(ring)]; }

void Builder::advance(BufferIndex buffer, std::int64_t versions) {
  begun_[index(buffer)] = std::max(begun_[index(buffer)], versions);
}

void Builder::emit(std::string name, LaneKind lane, Body body) {
  schedule.blocks.back().ops.push_back({std::move(name), Lane{lane, 0}, std::move(body), {}});
}

void Builder::call(std::vector<Call>& calls, std::string_view block, std::int64_t layer,
                   std::int64_t micro_batch, const LayerPlace& at) const {
  for (std::size_t i = 0; i < schedule.blocks.size(); ++i) {
    if (schedule.blocks[i].name != block) continue;
    calls.push_back({static_cast<std::int32_t>(i), static_cast<std::int32_t>(layer),
                     static_cast<std::int32_t>(micro_batch), static_cast<std::int32_t>(at.segment),
                     static_cast<std::int32_t>(at.place)});
    return;
  }
  FPDT_ASSERT(false);
}

}  // namespace fpdt
