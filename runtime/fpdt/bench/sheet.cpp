// Allocates buffers in the order of requests, one after the other in their spaces.
#include "fpdt/bench/sheet.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "fpdt/base/math.h"
#include "fpdt/schedule/depend.h"

namespace fpdt {
namespace {

constexpr std::int64_t kSlotsMost = 64;
constexpr std::int32_t kFirst = 0;  // blocks
constexpr std::int32_t kMany = 1;

}  // namespace

Sheet::Sheet(std::int64_t ranks, Bytes working_set, std::int64_t nodes)
    : working_set_(working_set) {
  const std::int64_t here = div_exact(ranks, nodes);
  schedule_.ranks = ranks;
  schedule_.problem = "{}";
  // Rank r of a node: r - r % here, and the members of its kind on all nodes: r % here.
  schedule_.groups = {{kEverybody, ranks, 1, {}},
                      {kNode, here, 1, {0, {here, 0, here, nodes}}},
                      {kAcross, nodes, here, {0, {1, 0, 1, here}}}};
  schedule_.blocks = {{"first", {}, {}}, {"many", {}, {}}};
}

BufferIndex Sheet::buffer(MemorySpace space, Role role, Dtype dtype,
                          const std::vector<std::int64_t>& shape) {
  Buffer buffer;
  buffer.name = fmt::format("b{}", schedule_.buffers.size());
  buffer.space = space;
  buffer.role = role;
  buffer.dtype = dtype;
  buffer.shape = shape;
  schedule_.buffers.push_back(buffer);
  contents_.emplace_back();
  return static_cast<BufferIndex>(schedule_.buffers.size() - 1);
}

Operand Sheet::given(Dtype dtype, std::int64_t rows, std::int64_t width, MemorySpace space) {
  const BufferIndex made = buffer(space, Role::input, dtype, {rows, width});
  turning_.push_back(made);
  return {made, Version::at(0, 1)};
}

Operand Sheet::noise(Dtype dtype, std::int64_t rows, std::int64_t width) {
  const Operand made = given(dtype, rows, width);
  contents_[index(made.buffer)].noise = true;
  return made;
}

Operand Sheet::scratch(Bytes bytes) {
  auto& advance = schedule_.blocks[kMany].advance;
  if (scratch_ < 0) {
    scratch_ = buffer(MemorySpace::device, Role::temporary, Dtype::f32, {1});
    scratch_advance_ = advance.size();
    advance.emplace_back(scratch_, 0);
  }
  std::int64_t& floats = schedule_.buffers[index(scratch_)].shape.front();
  floats = std::max(floats, div_ceil(bytes.value, 4));
  return {scratch_, Version::plus(advance[scratch_advance_].second++)};
}

Operand Sheet::integers(std::int64_t rows, std::int64_t limit) {
  const BufferIndex made = buffer(MemorySpace::device, Role::input, Dtype::i32, {rows});
  contents_[index(made)].limit = limit;
  return {made, Version::at(0)};
}

Target Sheet::result(Dtype dtype, std::int64_t rows, std::int64_t width, MemorySpace space) {
  const BufferIndex made = buffer(space, Role::temporary, dtype, {rows, width});
  turning_.push_back(made);
  schedule_.blocks[kMany].advance.emplace_back(made, 1);
  return {{made, Version::plus(0)}, false};
}

Target Sheet::sum(std::int64_t rows, std::int64_t width, Dtype dtype) {
  const BufferIndex made = buffer(MemorySpace::device, Role::temporary, dtype, {rows, width});
  sums_.push_back(made);
  return {{made, Version::at(0)}, true};
}

std::pair<Operand, Target> Sheet::replaced(std::int64_t elements) {
  const BufferIndex made = buffer(MemorySpace::device, Role::state, Dtype::f32, {elements});
  turning_.push_back(made);
  schedule_.blocks[kMany].advance.emplace_back(made, 1);
  return {{made, Version::plus(0)}, {{made, Version::plus(1)}, false}};
}

void Sheet::op(LaneKind lane, Body body) {
  Block& block = schedule_.blocks[kMany];
  block.ops.push_back({fmt::format("op{}", block.ops.size()), {lane, 0}, std::move(body), {}});
}

// Sends one float through every lane.
void Sheet::touch_lanes() {
  const auto floats = [&](MemorySpace space, Role role, std::int64_t count) {
    return Operand{buffer(space, role, Dtype::f32, {count}), Version::at(0)};
  };
  std::vector<Op>& ops = schedule_.blocks[kFirst].ops;
  const Operand here = floats(MemorySpace::device, Role::temporary, 1);
  const Operand back = floats(MemorySpace::host_pinned, Role::temporary, 1);
  ops.push_back({"fetch",
                 {LaneKind::h2d, 0},
                 Copy{floats(MemorySpace::host_pinned, Role::input, 1), {here, false}},
                 {}});
  Operand sent = here;
  if (schedule_.ranks > 1) {
    sent = floats(MemorySpace::device, Role::temporary, schedule_.ranks);
    ops.push_back(
        {"meet", {LaneKind::comm, 0}, AllGather{kEverybody, {here}, {{sent, false}}}, {}});
    sent.rows = 1;
  }
  ops.push_back({"spill", {LaneKind::d2h, 0}, Copy{sent, {back, false}}, {}});
}

VerifiedSchedule Sheet::finish() {
  std::int64_t bytes = 0;
  for (const BufferIndex one : turning_) bytes += schedule_.buffers[index(one)].slot_bytes().value;
  const std::int64_t slots = std::clamp<std::int64_t>(
      working_set_.value / std::max<std::int64_t>(bytes, 1), 1, kSlotsMost);
  for (const BufferIndex one : turning_) {
    Buffer& buffer = schedule_.buffers[index(one)];
    buffer.slots = slots;
    if (buffer.role != Role::state) continue;
    for (std::int64_t slot = 0; slot < slots; ++slot) {
      State& state = schedule_.states.emplace_back();
      state.buffer = one;
      state.version = slot;
      state.tensor = fmt::format("{}.{}", buffer.name, slot);
      state.kind = "master";
      state.shape = buffer.shape;
      state.replicas = schedule_.ranks;
    }
  }
  // The next version of a replaced state lies in the same slot.
  for (Op& op : schedule_.blocks[kMany].ops) {
    if (auto* step = std::get_if<AdamW>(&op.body)) {
      for (Target* target : {&step->master_out, &step->m_out, &step->v_out}) {
        target->operand.version = Version::plus(slots);
      }
    }
  }
  for (const BufferIndex one : sums_) {
    schedule_.blocks[kFirst].ops.push_back(
        {fmt::format("fill{}", one), {}, Fill{{{one, Version::at(0)}, false}, 0}, {}});
  }
  touch_lanes();
  schedule_.train.push_back({kFirst, 0, 0, 0});
  for (std::int32_t i = 0; i < kCalls; ++i) {
    schedule_.train.push_back({kMany, i % static_cast<std::int32_t>(slots), 0, 0});
  }
  std::array<std::int64_t, 3> ends{};
  for (Buffer& one : schedule_.buffers) {
    std::int64_t& end = ends[static_cast<std::size_t>(one.space)];
    one.offset = end;
    end += one.bytes().value;
  }
  depend(schedule_);
  return verified(std::move(schedule_));
}

}  // namespace fpdt
