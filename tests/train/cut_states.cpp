// Writes the tables, and counts elements one by one.
#include "cut_states.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "fpdt/base/math.h"
#include "fpdt/io/hf_weights.h"
#include "fpdt/runtime/bf16.h"
#include "fpdt/schedule/depend.h"

namespace fpdt {
namespace {

constexpr RankExpression kNone{};

State entry(TensorCut cut, std::int64_t shards, const RankExpression& shard) {
  State state;
  state.cut = std::move(cut);
  state.shards = shards;
  state.shard = shard;
  state.replicas = div_exact(6, state.cut.ways * shards);
  return state;
}

std::int64_t product(const std::vector<std::int64_t>& shape, std::size_t first, std::size_t end) {
  std::int64_t elements = 1;
  for (std::size_t axis = first; axis < end; ++axis) elements *= shape[axis];
  return elements;
}

// The part of its section that an index of the axis lies in; -1: it lies in none.
std::int64_t part_of(const TensorCut& cut, std::int64_t at) {
  std::int64_t first = cut.first;
  for (const std::int64_t section : cut.sections) {
    if (at >= first && at < first + section) return (at - first) / (section / cut.ways);
    first += section;
  }
  return -1;
}

// Queries in two parts and keys and values whole, pairs of halves, columns, or not at all.
std::vector<State> model_cuts(const TensorSpec& spec, const ModelSpec& model, bool shards) {
  const auto cut = [&](std::int64_t axis, std::int64_t first, std::vector<std::int64_t> sections,
                       std::int64_t ways) {
    const bool cuts = ways > 1;
    return entry({axis, first, std::move(sections), ways, cuts ? every(1, 2) : kNone},
                 shards ? (cuts ? 3 : 6) : 1,
                 !shards ? kNone
                 : cuts  ? every(2, 3)
                         : every(1, 6));
  };
  const std::int64_t queries = model.q_width();
  const std::string_view name = spec.name;
  if (name.find(".qkv.") != name.npos) {
    return {cut(0, 0, {queries}, 2), cut(0, queries, {spec.shape[0] - queries}, 1)};
  }
  if (name.ends_with("up.weight")) return {cut(0, 0, {spec.shape[0] / 2, spec.shape[0] / 2}, 2)};
  if (name.ends_with("out.weight") || name.ends_with("down.weight")) {
    return {cut(1, 0, {spec.shape[1]}, 2)};
  }
  return {entry({}, shards ? 6 : 1, shards ? every(1, 6) : kNone)};
}

}  // namespace

std::vector<CutTensor> cut_tensors() {
  return {
      {"sections", {16, 5}, {entry({0, 0, {8, 4, 4}, 2, every(1, 2)}, 3, every(2, 3))}},
      {"columns", {5, 8}, {entry({1, 0, {8}, 2, every(3, 2)}, 3, every(1, 3))}},
      {"column_sections", {7, 9}, {entry({1, 0, {6, 3}, 3, every(1, 3)}, 2, every(3, 2))}},
      {"entries",
       {12, 5},
       {entry({0, 0, {6}, 6, every(1, 6)}, 1, kNone),
        entry({0, 6, {4, 2}, 2, every(1, 2)}, 1, kNone)}},
      {"column_entries",
       {3, 10},
       {entry({1, 0, {3, 3}, 3, every(2, 3)}, 1, kNone),
        entry({1, 6, {4}, 2, every(1, 2)}, 3, every(2, 3))}},
      {"whole_entry",
       {9, 3},
       {entry({0, 0, {6}, 2, every(1, 2)}, 1, kNone),
        entry({0, 6, {2, 1}, 1, kNone}, 6, every(1, 6))}},
      {"middle", {2, 6, 3}, {entry({1, 0, {6}, 3, every(2, 3)}, 1, kNone)}},
      {"slots", {40, 20}, {entry({1, 0, {12, 8}, 2, every(1, 2)}, 3, every(2, 3))}},
      {"only_padding", {4, 2}, {entry({1, 0, {2}, 2, every(1, 2)}, 3, every(2, 3))}},
      {"uncut", {3, 7}, {entry({}, 6, every(1, 6))}},
  };
}

void add_states(Schedule& schedule, const CutTensor& tensor, const std::string& kind, Dtype dtype) {
  for (State state : tensor.entries) {
    state.tensor = tensor.name;
    state.kind = kind;
    state.shape = tensor.shape;
    state.buffer = static_cast<BufferIndex>(schedule.buffers.size());
    Buffer& buffer = schedule.buffers.emplace_back();
    buffer.name = fmt::format("b{}", state.buffer);
    buffer.role = Role::state;
    buffer.category = Category::weights;
    buffer.dtype = dtype;
    buffer.shape = {1, kAlignment / dtype_bytes(dtype)};
    buffer.slots = div_ceil(div_ceil(part_elements(state), state.shards), buffer.row_elements());
    schedule.states.push_back(std::move(state));
  }
}

Schedule placed(Schedule schedule) {
  std::array<std::int64_t, 3> end{};
  for (Buffer& buffer : schedule.buffers) {
    std::int64_t& offset = end[static_cast<std::size_t>(buffer.space)];
    buffer.offset = offset;
    offset += buffer.bytes().value;
  }
  return schedule;
}

Schedule table_of_cuts() {
  Schedule schedule;
  schedule.ranks = 6;
  for (const CutTensor& tensor : cut_tensors()) {
    add_states(schedule, tensor, "master", Dtype::f32);
    add_states(schedule, tensor, "parameter", Dtype::bf16);
  }
  return placed(std::move(schedule));
}

Schedule cut_model(const ModelSpec& model) {
  Schedule schedule;
  schedule.ranks = 6;
  const auto add = [&](const char* name, Role role, Dtype dtype, std::vector<std::int64_t> shape) {
    const Category category = dtype == Dtype::i32 ? Category::tokens : Category::scalars;
    const auto space = role == Role::temporary ? MemorySpace::device : MemorySpace::host;
    schedule.buffers.push_back({name, space, role, category, dtype, std::move(shape)});
    return Operand{static_cast<BufferIndex>(schedule.buffers.size()) - 1, Version::at(0)};
  };
  constexpr std::int64_t kRows = kCutTokens / 6;
  const Operand tokens_input = add("tokens_input", Role::input, Dtype::i32, {kRows});
  const Operand labels_input = add("labels_input", Role::input, Dtype::i32, {kRows});
  add("step_input", Role::input, Dtype::f32, {4});
  const Operand tokens = add("tokens", Role::temporary, Dtype::i32, {kRows});
  const Operand table = add("table", Role::temporary, Dtype::f32, {model.vocabulary, model.hidden});
  const Operand x = add("x", Role::temporary, Dtype::f32, {kRows, model.hidden});
  const Operand zero = add("zero", Role::temporary, Dtype::f32, {1});
  Block& block = schedule.blocks.emplace_back();
  block.name = "step";
  const auto emit = [&](const char* name, LaneKind lane, Body body) {
    block.ops.push_back({name, {lane, 0}, std::move(body), {}});
  };
  const RankExpression first{0, {kRows, 0, 1, 6}, {}};
  Embedding embed;
  embed.tokens = tokens;
  embed.table = table;
  embed.x.operand = x;
  embed.rows = kRows;
  embed.width = model.hidden;
  embed.vocabulary = model.vocabulary;
  embed.token_first = first;
  emit("fetch", LaneKind::h2d, Copy{tokens_input, {tokens, false}});
  emit("table", LaneKind::compute, Fill{{table, false}, 0});
  emit("embed", LaneKind::compute, embed);
  emit("zero", LaneKind::compute, Fill{{zero, false}, 0});
  for (const char* name : {"loss_output", "grad_norm_output"}) {
    emit(name, LaneKind::d2h, Copy{zero, {add(name, Role::output, Dtype::f32, {1}), false}});
  }
  schedule.train = {{}};
  for (const Operand& input : {tokens_input, labels_input}) {
    const Holds holds = input == tokens_input ? Holds::tokens : Holds::labels;
    schedule.feeds.push_back({input.buffer, holds, 0, kRows, first, {}});
  }
  depend(schedule);
  for (const TensorSpec& spec : model_tensors(model)) {
    add_states(schedule, {spec.name, spec.shape, model_cuts(spec, model, false)}, "parameter",
               Dtype::bf16);
    for (const char* kind : {"master", "moment1", "moment2", "gradient"}) {
      add_states(schedule, {spec.name, spec.shape, model_cuts(spec, model, true)}, kind,
                 Dtype::f32);
    }
  }
  return placed(std::move(schedule));
}

std::vector<std::int64_t> held_elements(const State& state, std::int64_t rank) {
  const std::vector<std::int64_t>& shape = state.shape;
  const auto axis = static_cast<std::size_t>(state.cut.axis);
  const std::int64_t inner = product(shape, axis + 1, shape.size());
  std::vector<std::int64_t> part;
  for (std::int64_t i = 0; i < product(shape, 0, shape.size()); ++i) {
    const bool whole = state.cut.sections.empty();
    if (whole || part_of(state.cut, i / inner % shape[axis]) == state.cut.part.at(rank)) {
      part.push_back(i);
    }
  }
  const std::int64_t piece = div_ceil(std::ssize(part), state.shards);
  std::vector<std::int64_t> held;
  for (std::int64_t i = 0; i < piece; ++i) {
    const std::int64_t at = state.shard.at(rank) * piece + i;
    if (at < std::ssize(part)) held.push_back(part[static_cast<std::size_t>(at)]);
  }
  return held;
}

std::vector<std::byte> held_bytes(const Schedule& schedule, const State& state, std::int64_t rank) {
  const Buffer& buffer = schedule.buffers[static_cast<std::size_t>(state.buffer)];
  std::vector<std::byte> bytes;
  for (const std::int64_t element : held_elements(state, rank)) {
    const float value = value_of(element);
    std::array<std::byte, 4> encoded{};
    std::memcpy(encoded.data(), &value, 4);
    // bf16 is the upper half of f32, and this machine stores the lower half first.
    bytes.insert(bytes.end(), encoded.begin() + (buffer.dtype == Dtype::bf16 ? 2 : 0),
                 encoded.end());
  }
  bytes.resize(static_cast<std::size_t>(buffer.slots * buffer.slot_bytes().value));
  return bytes;
}

float value_of(std::int64_t element) { return widen(static_cast<std::uint16_t>(0x3f80 + element)); }

std::vector<float> values_of(std::int64_t elements) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < elements; ++i) values.push_back(value_of(i));
  return values;
}

}  // namespace fpdt
