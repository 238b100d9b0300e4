// Maps tensors to pieces, slots and types by the state table.
#include "fpdt/train/states.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/error.h"
#include "fpdt/io/hf_weights.h"
#include "fpdt/runtime/bf16.h"

namespace fpdt {
namespace {

std::int64_t whole_elements(const StateEntries& entries) {
  FPDT_ASSERT(!entries.empty());
  return tensor_elements(*entries.front());
}

// What the present ranks hold.
std::vector<StatePiece> pieces_here(const Ranks& ranks, const StateEntries& entries) {
  std::vector<StatePiece> pieces;
  for (const State* const state : entries) {
    for (const std::int64_t rank : ranks.present()) {
      pieces.emplace_back(ranks.schedule(), *state, rank);
    }
  }
  return pieces;
}

// Each piece of the tensor once, on the lowest rank that holds it.
std::vector<StatePiece> distinct_pieces(const Schedule& schedule, const StateEntries& entries) {
  std::vector<StatePiece> pieces;
  for (const State* const state : entries) {
    std::set<std::pair<std::int64_t, std::int64_t>> seen;
    for (std::int64_t rank = 0; rank < schedule.ranks; ++rank) {
      if (!seen.emplace(state->cut.part.at(rank), state->shard.at(rank)).second) continue;
      pieces.emplace_back(schedule, *state, rank);
    }
  }
  return pieces;
}

void encode(Dtype dtype, std::span<const float> values, std::span<std::byte> bytes) {
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

// The bytes of a run, where `bytes` begin with element `at` of the piece.
std::span<std::byte> bytes_of(const StateRun& run, std::int64_t at, Dtype dtype,
                              std::span<std::byte> bytes) {
  const std::int64_t width = dtype_bytes(dtype);
  return bytes.subspan(index((run.at - at) * width), index(run.elements * width));
}

// Reads elements of a piece from `at` on.
void read_piece(const Executor& executor, const StatePiece& piece, std::int64_t at,
                std::span<std::byte> bytes) {
  const std::int64_t width = dtype_bytes(piece.dtype());
  while (!bytes.empty()) {
    const StatePlace place = piece.place_at(at);
    const auto part = bytes.first(std::min(bytes.size(), index(place.left * width)));
    executor.read_part(piece.buffer(), place.slot, place.at * width, part);
    bytes = bytes.subspan(part.size());
    at += std::ssize(part) / width;
  }
}

// Writes a range of a piece, which may go on into its padding. `encode_from(at, bytes)` makes the
// bytes of its elements from `at` on. If the host can address the slots, it makes them in place.
template <class EncodeFrom>
void write_piece(Executor& executor, const StatePiece& piece, const ElementRange& range,
                 const EncodeFrom& encode_from) {
  const std::int64_t width = dtype_bytes(piece.dtype());
  std::vector<std::byte> staged;
  for (std::int64_t at = range.first, count = 0; at < range.end; at += count) {
    const StatePlace place = piece.place_at(at);
    count = std::min(place.left, range.end - at);
    if (!executor.demand_paged()) {
      count = std::min(count, kStreamElements);
      staged.resize(index(count * width));
    }
    const std::span<std::byte> bytes =
        executor.demand_paged() ? executor.slot(piece.buffer(), place.slot)
                                      .subspan(index(place.at * width), index(count * width))
                                : std::span(staged);
    const std::int64_t used = std::clamp<std::int64_t>(piece.elements() - at, 0, count);
    if (used > 0) encode_from(at, bytes.first(index(used * width)));
    std::fill(bytes.begin() + used * width, bytes.end(), std::byte{0});
    if (!executor.demand_paged()) {
      executor.write_part(piece.buffer(), place.slot, place.at * width, bytes);
    }
  }
}

// Encodes elements of a piece from `at` on, on all threads: in tasks of 64 Ki elements, and in
// blocks that fit into a core's own cache.
void fill_bytes(const StatePiece& piece, std::int64_t at, std::span<std::byte> bytes, Pool& pool,
                const Elements& elements) {
  constexpr std::int64_t kBlock = 2048;
  constexpr std::int64_t kTask = 32 * kBlock;
  const std::int64_t width = dtype_bytes(piece.dtype());
  const std::int64_t end = at + std::ssize(bytes) / width;
  pool.for_each(div_ceil(end - at, kTask), [&](std::int64_t task, std::int32_t) {
    std::array<float, kBlock> block;
    const std::int64_t begin = at + task * kTask;
    for (std::int64_t i = begin; i < std::min(end, begin + kTask); i += kBlock) {
      const auto values = std::span(block).first(index(std::min(kBlock, end - i)));
      piece.each_run({i, i + std::ssize(values)}, [&](const StateRun& run) {
        elements(run.first, values.subspan(index(run.at - i), index(run.elements)));
      });
      encode(piece.dtype(), values, bytes.subspan(index((i - at) * width)));
    }
  });
}

}  // namespace

StateEntries states_of(const Schedule& schedule, std::string_view tensor, std::string_view kind) {
  StateEntries entries;
  for (const State& state : schedule.states) {
    if (state.tensor == tensor && state.kind == kind) entries.push_back(&state);
  }
  return entries;
}

StateEntries weight_states(const Schedule& schedule, std::string_view tensor) {
  StateEntries entries = states_of(schedule, tensor, "parameter");
  const StateEntries masters = states_of(schedule, tensor, "master");
  entries.insert(entries.end(), masters.begin(), masters.end());
  return entries;
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

void stream_state(const Ranks& ranks, const StateEntries& entries, std::int64_t process,
                  const TensorSink& sink) {
  World& world = ranks.world();
  FPDT_ASSERT(world.complete());
  const std::int64_t here = world.place().process;
  const bool receives = here == process;
  const std::int64_t elements = whole_elements(entries);
  std::vector<float> values(receives ? index(std::min(elements, kStreamElements)) : 0);
  std::vector<std::byte> encoded;  // of f32 hardly more than half a block: the rest is elsewhere
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
  // Moves what a block of the tensor has of a piece: to its place, if it is one run of f32.
  const auto pass = [&](const StatePiece& piece, const ElementRange& block) {
    const std::int64_t owner = world.process_of(piece.rank());
    if (owner != here && !receives) return;
    const ElementRange range = piece.within(block);
    const std::int64_t count = range.end - range.first;
    if (count == 0) return;
    const Dtype dtype = piece.dtype();
    const auto target = [&](const StateRun& run) {
      return std::span(values).subspan(index(run.first - block.first), index(run.elements));
    };
    StateRun run = piece.run_at(range.first);
    const bool in_place = receives && dtype == Dtype::f32 && run.elements >= count;
    run.elements = count;
    if (!in_place) encoded.resize(index(mul(count, dtype_bytes(dtype))));
    const auto bytes = in_place ? std::as_writable_bytes(target(run)) : std::span(encoded);
    if (owner == here) {
      attempt([&] { read_piece(ranks.executor(piece.rank()), piece, range.first, bytes); });
    }
    if (owner == here && !receives) world.send(process, bytes);
    if (owner != here) world.receive(owner, bytes);
    if (!receives || in_place) return;
    piece.each_run(range, [&](const StateRun& part) {
      decode(dtype, bytes_of(part, range.first, dtype, bytes), target(part));
    });
  };
  const std::vector<StatePiece> pieces = distinct_pieces(ranks.schedule(), entries);
  for (std::int64_t first = 0; first < elements; first += kStreamElements) {
    const ElementRange block{first, std::min(elements, first + kStreamElements)};
    for (const StatePiece& piece : pieces) pass(piece, block);
    if (receives) {
      attempt([&] { sink(first, std::span(values).first(index(block.end - first))); });
    }
  }
  if (error != nullptr) std::rethrow_exception(error);
}

std::vector<float> read_state(const Ranks& ranks, const StateEntries& entries) {
  std::vector<float> all(index(whole_elements(entries)));
  for (std::int64_t process = 0; process < ranks.world().place().processes; ++process) {
    stream_state(ranks, entries, process, [&](std::int64_t first, std::span<const float> values) {
      std::copy(values.begin(), values.end(), all.begin() + first);
    });
  }
  return all;
}

std::vector<ElementRange> held_ranges(const Ranks& ranks, const StateEntries& entries) {
  std::vector<ElementRange> ranges;
  for (const StatePiece& piece : pieces_here(ranks, entries)) {
    piece.each_run({0, piece.elements()}, [&](const StateRun& run) {
      ranges.push_back({run.first, run.first + run.elements});
    });
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const ElementRange& a, const ElementRange& b) { return a.first < b.first; });
  std::vector<ElementRange> merged;
  for (const ElementRange& range : ranges) {
    if (merged.empty() || merged.back().end + kReadThrough < range.first) {
      merged.push_back(range);
    } else {
      merged.back().end = std::max(merged.back().end, range.end);
    }
  }
  return merged;
}

void write_range(const Ranks& ranks, const StateEntries& entries, std::int64_t first,
                 std::span<const float> values) {
  const std::int64_t elements = whole_elements(entries);
  const std::int64_t end = first + std::ssize(values);
  FPDT_ASSERT(first >= 0 && end <= elements);
  for (const StatePiece& piece : pieces_here(ranks, entries)) {
    ElementRange range = piece.within({first, end});
    // Padding goes with the last element of its piece, or of the tensor if the piece has none.
    const bool goes_on = range.first < range.end || end == elements;
    if (goes_on && range.end == piece.elements()) range.end = piece.room();
    write_piece(ranks.executor(piece.rank()), piece, range,
                [&](std::int64_t at, std::span<std::byte> bytes) {
                  const std::int64_t count = std::ssize(bytes) / dtype_bytes(piece.dtype());
                  piece.each_run({at, at + count}, [&](const StateRun& run) {
                    encode(piece.dtype(),
                           values.subspan(index(run.first - first), index(run.elements)),
                           bytes_of(run, at, piece.dtype(), bytes));
                  });
                });
  }
}

void fill_state(const Ranks& ranks, const StateEntries& entries, Pool& pool,
                const Elements& elements) {
  for (const StatePiece& piece : pieces_here(ranks, entries)) {
    write_piece(ranks.executor(piece.rank()), piece, {0, piece.room()},
                [&](std::int64_t at, std::span<std::byte> bytes) {
                  fill_bytes(piece, at, bytes, pool, elements);
                });
  }
}

}  // namespace fpdt
