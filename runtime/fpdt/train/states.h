// Reads and writes tensors of a schedule's state table on the ranks.
//
// The table cuts a tensor into pieces of ceil(elements / shards) elements. Piece shard.at(r) lies
// on rank r. It begins in the slot of the state's version and takes as many slots as it needs.
// schedule/lasting.h has the verifier's view of this. Tensors pass through host memory in parts of
// at most kStreamElements.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/cpu/pool.h"
#include "fpdt/io/safetensors.h"
#include "fpdt/spec/model.h"
#include "fpdt/train/ranks.h"

namespace fpdt {

// Returns the row of the table, or null. Kinds: parameter, master, moment1, moment2, gradient.
const State* find_state(const Schedule& schedule, std::string_view tensor, std::string_view kind);

// Throws InputError when the table and the model name different tensors, or their shapes differ.
void require_states(const Schedule& schedule, const ModelSpec& model);

// Together: hands the tensor, row-major, to `sink` on one process. The lowest rank that holds an
// element sends it. A sink that throws ends nothing early: the error is thrown when the tensor has
// passed, and only there. Precondition: the world is complete.
void stream_state(const Ranks& ranks, const State& state, std::int64_t process,
                  const TensorSink& sink);

// Together: the whole tensor, on every process.
std::vector<float> read_state(const Ranks& ranks, const State& state);

// Elements [first, end) of a tensor.
struct ElementRange {
  std::int64_t first = 0, end = 0;
  bool operator==(const ElementRange&) const = default;
};

// The elements that the present ranks hold of several states of one tensor: ranges, ascending and
// apart from each other.
std::vector<ElementRange> held_ranges(const Ranks& ranks, const std::vector<const State*>& states);

// Sets the elements from `first` on, on every present rank that holds them, rounded to the buffer's
// type. Zeros follow the last element that a rank holds.
void write_range(const Ranks& ranks, const State& state, std::int64_t first,
                 std::span<const float> values);

// Writes the elements of a tensor from `first` on into `values`. Many threads call it at once, each
// for its own part.
using Elements = std::function<void(std::int64_t first, std::span<float> values)>;

// Sets the tensor from `elements`, which is asked only for those that present ranks hold. If the
// host can address the slots, they are written in place.
void fill_state(const Ranks& ranks, const State& state, Pool& pool, const Elements& elements);

}  // namespace fpdt
