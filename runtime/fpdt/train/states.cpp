// Maps tensors to pieces, slots and types by the state table.
#include "fpdt/train/states.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/error.h"
#include "fpdt/io/hf_weights.h"
#include "fpdt/runtime/bf16.h"
#include "fpdt/schedule/lasting.h"

namespace fpdt {
namespace {

std::size_t size(std::int64_t value) { return static_cast<std::size_t>(value); }

std::int64_t elements_of(const State& state) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : state.shape) elements = mul(elements, extent);
  return elements;
}

// A contiguous range of the tensor that lies in one slot of one rank.
struct Run {
  std::int64_t rank = 0;
  std::int64_t slot = 0;
  std::int64_t first = 0;     // first element within the tensor
  std::int64_t elements = 0;  // 0: the slot holds only padding
};

std::vector<Run> runs_of(const Ranks& ranks, const State& state) {
  const Buffer& buffer = ranks.schedule().buffers[size(state.buffer)];
  const std::int64_t slot_elements = mul(buffer.rows(), buffer.row_elements());
  const StateSlots held = slots_of(ranks.schedule(), state);
  std::vector<Run> runs;
  for (const std::int64_t rank : ranks.present()) {
    const std::int64_t begin = mul(state.shard.at(rank), held.elements);
    const std::int64_t end = std::min(begin + held.elements, elements_of(state));
    for (std::int64_t i = 0; i < held.count; ++i) {
      const std::int64_t first = begin + i * slot_elements;
      runs.push_back(
          {rank, held.first + i, first, std::clamp<std::int64_t>(end - first, 0, slot_elements)});
    }
  }
  return runs;
}

// Encodes the values and fills the rest with zeros.
void encode(Dtype dtype, std::span<const float> values, std::span<std::byte> bytes) {
  const std::size_t used = values.size() * size(dtype_bytes(dtype));
  std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(used), bytes.end(), std::byte{0});
  if (values.empty()) return;  // only padding
  if (dtype == Dtype::f32) {
    std::memcpy(bytes.data(), values.data(), values.size_bytes());
    return;
  }
  FPDT_ASSERT(dtype == Dtype::bf16);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t bits = narrow(values[i]);
    std::memcpy(bytes.data() + 2 * i, &bits, 2);
  }
}

void decode(Dtype dtype, std::span<const std::byte> bytes, std::span<float> values) {
  if (dtype == Dtype::f32) {
    std::memcpy(values.data(), bytes.data(), values.size_bytes());
    return;
  }
  FPDT_ASSERT(dtype == Dtype::bf16);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + 2 * i, 2);
    values[i] = widen(bits);
  }
}

// Encodes elements of the tensor from `first` on, followed by zeros, on all threads: in tasks of 64
// Ki elements, and in blocks that fit into a core's own cache.
void fill_bytes(Dtype dtype, std::int64_t first, std::int64_t count, std::span<std::byte> bytes,
                Pool& pool, const Elements& elements) {
  constexpr std::int64_t kBlock = 2048;
  constexpr std::int64_t kTask = 32 * kBlock;
  const std::int64_t width = dtype_bytes(dtype);
  const std::int64_t room = std::ssize(bytes) / width;
  pool.for_each(div_ceil(room, kTask), [&](std::int64_t task, std::int32_t) {
    std::array<float, kBlock> block;
    for (std::int64_t at = task * kTask; at < std::min(room, (task + 1) * kTask); at += kBlock) {
      const std::int64_t here = std::min(kBlock, room - at);
      const auto values =
          std::span(block).first(size(std::clamp<std::int64_t>(count - at, 0, here)));
      if (!values.empty()) elements(first + at, values);
      encode(dtype, values, bytes.subspan(size(at * width), size(here * width)));
    }
  });
}

}  // namespace

const State* find_state(const Schedule& schedule, std::string_view tensor, std::string_view kind) {
  for (const State& state : schedule.states) {
    if (state.tensor == tensor && state.kind == kind) return &state;
  }
  return nullptr;
}

void require_states(const Schedule& schedule, const ModelSpec& model) {
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const TensorSpec& tensor : model_tensors(model)) shapes[tensor.name] = tensor.shape;
  std::vector<Diagnostic> findings;
  std::set<std::string> found;
  for (const State& state : schedule.states) {
    const auto known = shapes.find(state.tensor);
    const std::string where = fmt::format("{} of {}", state.kind, state.tensor);
    if (known == shapes.end()) {
      findings.push_back({"R101", where, fmt::format("model {} has no such tensor", model.name)});
    } else if (known->second != state.shape) {
      findings.push_back(
          {"R101", where,
           fmt::format("expected the shape [{}], found [{}]", fmt::join(known->second, ", "),
                       fmt::join(state.shape, ", "))});
    }
    found.insert(fmt::format("{} {}", state.kind, state.tensor));
  }
  for (const auto& [tensor, shape] : shapes) {
    for (const char* kind : {"parameter", "moment1", "moment2", "gradient"}) {
      if (found.count(fmt::format("{} {}", kind, tensor)) != 0) continue;
      findings.push_back({"R102", fmt::format("{} of {}", kind, tensor),
                          "missing from the state table of the schedule"});
    }
  }
  if (!findings.empty()) throw InputError(format_diagnostics(findings));
}

std::vector<float> read_state(const Ranks& ranks, const State& state) {
  const Buffer& buffer = ranks.schedule().buffers[size(state.buffer)];
  std::vector<float> values(size(elements_of(state)));
  std::vector<std::byte> slot(size(buffer.slot_bytes().value));
  for (const Run& run : runs_of(ranks, state)) {
    if (run.elements == 0) continue;
    ranks.executor(run.rank).read(state.buffer, run.slot, slot);
    decode(buffer.dtype, slot, std::span(values).subspan(size(run.first), size(run.elements)));
  }
  return values;
}

void write_state(const Ranks& ranks, const State& state, std::span<const float> values) {
  FPDT_ASSERT(values.size() == size(elements_of(state)));
  const Buffer& buffer = ranks.schedule().buffers[size(state.buffer)];
  std::vector<std::byte> slot(size(buffer.slot_bytes().value));
  for (const Run& run : runs_of(ranks, state)) {
    const auto part = run.elements == 0 ? std::span<const float>()
                                        : values.subspan(size(run.first), size(run.elements));
    encode(buffer.dtype, part, slot);
    ranks.executor(run.rank).write(state.buffer, run.slot, slot);
  }
}

void fill_state(const Ranks& ranks, const State& state, Pool& pool, const Elements& elements) {
  constexpr std::int64_t kStaged = 16 << 20;
  const Buffer& buffer = ranks.schedule().buffers[size(state.buffer)];
  std::vector<std::byte> staged;
  for (const Run& run : runs_of(ranks, state)) {
    Executor& executor = ranks.executor(run.rank);
    if (executor.demand_paged()) {  // the slots are host memory
      const std::span<std::byte> slot = executor.slot(state.buffer, run.slot);
      fill_bytes(buffer.dtype, run.first, run.elements, slot, pool, elements);
      continue;
    }
    const std::int64_t bytes = buffer.slot_bytes().value;
    staged.resize(size(std::min(bytes, kStaged)));
    for (std::int64_t at = 0; at < bytes; at += kStaged) {
      const auto piece = std::span(staged).first(size(std::min(kStaged, bytes - at)));
      const std::int64_t before = at / dtype_bytes(buffer.dtype);
      fill_bytes(buffer.dtype, run.first + before, run.elements - before, piece, pool, elements);
      executor.write_part(state.buffer, run.slot, at, piece);
    }
  }
}

}  // namespace fpdt
