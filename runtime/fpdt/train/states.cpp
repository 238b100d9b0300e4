// Maps tensors to pieces, slots and types by the state table.
#include "fpdt/train/states.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <exception>
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

std::int64_t slot_elements(const Buffer& buffer) {
  return mul(buffer.rows(), buffer.row_elements());
}

// The elements of the tensor that the rank holds, slot by slot.
std::vector<Run> runs_of(const Schedule& schedule, const State& state, std::int64_t rank) {
  const std::int64_t room = slot_elements(schedule.buffers[size(state.buffer)]);
  const StateSlots held = slots_of(schedule, state);
  const std::int64_t begin = mul(state.shard.at(rank), held.elements);
  const std::int64_t end = std::min(begin + held.elements, elements_of(state));
  std::vector<Run> runs;
  for (std::int64_t i = 0; i < held.count; ++i) {
    const std::int64_t first = begin + i * room;
    runs.push_back({rank, held.first + i, first, std::clamp<std::int64_t>(end - first, 0, room)});
  }
  return runs;
}

// The same for all present ranks.
std::vector<Run> runs_here(const Ranks& ranks, const State& state) {
  std::vector<Run> all;
  for (const std::int64_t rank : ranks.present()) {
    const std::vector<Run> runs = runs_of(ranks.schedule(), state, rank);
    all.insert(all.end(), runs.begin(), runs.end());
  }
  return all;
}

// The lowest rank that holds each piece.
std::vector<std::int64_t> first_holders(const Schedule& schedule, const State& state) {
  std::vector<std::int64_t> holders(size(state.shards), -1);
  for (std::int64_t rank = schedule.ranks - 1; rank >= 0; --rank) {
    holders[size(state.shard.at(rank))] = rank;
  }
  return holders;
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

// Writes `count` elements of a slot from element `at` on: the values, and zeros after them. If the
// host can address the slot, they are written in place.
void write_slot(Executor& executor, BufferIndex buffer, std::int64_t slot, std::int64_t at,
                std::span<const float> values, std::int64_t count) {
  const Dtype dtype = executor.schedule().buffers[size(buffer)].dtype;
  const std::int64_t width = dtype_bytes(dtype);
  std::vector<std::byte> staged;
  for (std::int64_t done = 0; done < count; done += kStreamElements) {
    const std::int64_t here = std::min(kStreamElements, count - done);
    const auto part = values.subspan(std::min(values.size(), size(done)));
    const auto now = part.first(std::min(part.size(), size(here)));
    const std::int64_t begin = mul(at + done, width);
    if (executor.demand_paged()) {
      encode(dtype, now, executor.slot(buffer, slot).subspan(size(begin), size(here * width)));
      continue;
    }
    staged.resize(size(here * width));
    encode(dtype, now, staged);
    executor.write_part(buffer, slot, begin, staged);
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
    if (state.cut.ways != 1) {
      findings.push_back({"R101", where, "is cut between ranks, which training does not serve"});
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

void stream_state(const Ranks& ranks, const State& state, std::int64_t process,
                  const TensorSink& sink) {
  World& world = ranks.world();
  FPDT_ASSERT(world.complete());
  const Dtype dtype = ranks.schedule().buffers[size(state.buffer)].dtype;
  const bool receives = world.place().process == process;
  std::vector<float> values;
  std::vector<std::byte> encoded;
  // After an error of this process the rest still passes, so that nobody waits for it in vain.
  std::exception_ptr error;
  const auto attempt = [&](const auto& work) {
    if (error != nullptr) return;
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
  };
  const auto pass = [&](const Run& run, std::int64_t at, std::int64_t count) {
    const std::int64_t owner = world.process_of(run.rank);
    const bool sends = owner == world.place().process;
    if (!sends && !receives) return;
    values.resize(size(count));
    if (dtype != Dtype::f32) encoded.resize(size(mul(count, dtype_bytes(dtype))));
    const std::span<std::byte> bytes =
        dtype == Dtype::f32 ? std::as_writable_bytes(std::span(values)) : std::span(encoded);
    if (sends) {
      attempt([&] {
        ranks.executor(run.rank).read_part(state.buffer, run.slot, mul(at, dtype_bytes(dtype)),
                                           bytes);
      });
    }
    if (sends && !receives) world.send(process, bytes);
    if (receives && !sends) world.receive(owner, bytes);
    if (!receives) return;
    if (dtype != Dtype::f32) decode(dtype, encoded, values);
    attempt([&] { sink(run.first + at, values); });
  };
  for (const std::int64_t rank : first_holders(ranks.schedule(), state)) {
    for (const Run& run : runs_of(ranks.schedule(), state, rank)) {
      for (std::int64_t at = 0; at < run.elements; at += kStreamElements) {
        pass(run, at, std::min(kStreamElements, run.elements - at));
      }
    }
  }
  if (error != nullptr) std::rethrow_exception(error);
}

std::vector<float> read_state(const Ranks& ranks, const State& state) {
  std::vector<float> all(size(elements_of(state)));
  for (std::int64_t process = 0; process < ranks.world().place().processes; ++process) {
    stream_state(ranks, state, process, [&](std::int64_t first, std::span<const float> values) {
      std::copy(values.begin(), values.end(), all.begin() + first);
    });
  }
  return all;
}

std::vector<ElementRange> held_ranges(const Ranks& ranks, const std::vector<const State*>& states) {
  std::vector<ElementRange> ranges;
  for (const State* const state : states) {
    for (const Run& run : runs_here(ranks, *state)) {
      if (run.elements > 0) ranges.push_back({run.first, run.first + run.elements});
    }
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const ElementRange& a, const ElementRange& b) { return a.first < b.first; });
  std::vector<ElementRange> merged;
  for (const ElementRange& range : ranges) {
    if (merged.empty() || merged.back().end < range.first) {
      merged.push_back(range);
    } else {
      merged.back().end = std::max(merged.back().end, range.end);
    }
  }
  return merged;
}

void write_range(const Ranks& ranks, const State& state, std::int64_t first,
                 std::span<const float> values) {
  const Buffer& buffer = ranks.schedule().buffers[size(state.buffer)];
  const std::int64_t end = first + std::ssize(values);
  FPDT_ASSERT(first >= 0 && end <= elements_of(state));
  for (const Run& run : runs_here(ranks, state)) {
    const std::int64_t begin = std::max(first, run.first);
    const std::int64_t run_end = run.first + run.elements;
    const auto part =
        begin < std::min(end, run_end)
            ? values.subspan(size(begin - first), size(std::min(end, run_end) - begin))
            : std::span<const float>();
    // A slot of padding alone goes with the last element of the tensor.
    const std::int64_t last = std::min(run_end, elements_of(state));
    const bool pads = first < last && last <= end;
    const std::int64_t at = part.empty() ? 0 : begin - run.first;
    write_slot(ranks.executor(run.rank), state.buffer, run.slot, at, part,
               pads ? slot_elements(buffer) - at : std::ssize(part));
  }
}

void fill_state(const Ranks& ranks, const State& state, Pool& pool, const Elements& elements) {
  constexpr std::int64_t kStaged = sizeof(float) * kStreamElements;
  const Buffer& buffer = ranks.schedule().buffers[size(state.buffer)];
  std::vector<std::byte> staged;
  for (const Run& run : runs_here(ranks, state)) {
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
