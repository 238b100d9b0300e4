// Pieces, slots and types of the state table.
#include "fpdt/train/states.h"

#include <algorithm>
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

namespace fpdt {
namespace {

std::size_t size(std::int64_t value) { return static_cast<std::size_t>(value); }

std::int64_t elements_of(const State& state) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : state.shape) elements = mul(elements, extent);
  return elements;
}

// A run of the tensor that lies in one slot of one rank.
struct Run {
  std::int64_t rank = 0;
  std::int64_t slot = 0;
  std::int64_t first = 0;     // element of the tensor
  std::int64_t elements = 0;  // 0: the slot holds padding only
};

std::vector<Run> runs_of(const Ranks& ranks, const State& state) {
  const Buffer& buffer = ranks.schedule().buffers[size(state.buffer)];
  const std::int64_t slot_elements = mul(buffer.rows(), buffer.row_elements());
  const std::int64_t elements = elements_of(state);
  const std::int64_t piece = div_ceil(elements, state.shards);
  std::vector<Run> runs;
  for (const std::int64_t rank : ranks.present()) {
    const std::int64_t begin = mul(state.shard.at(rank), piece);
    const std::int64_t end = std::min(begin + piece, elements);
    for (std::int64_t i = 0; i < div_ceil(piece, slot_elements); ++i) {
      const std::int64_t first = begin + i * slot_elements;
      runs.push_back({rank, (state.version + i) % buffer.slots, first,
                      std::clamp<std::int64_t>(end - first, 0, slot_elements)});
    }
  }
  return runs;
}

void encode(Dtype dtype, std::span<const float> values, std::span<std::byte> bytes) {
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  if (values.empty()) return;  // padding only
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

}  // namespace fpdt
