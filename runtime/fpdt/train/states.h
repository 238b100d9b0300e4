// Reads and writes whole tensors of a schedule's state table on the ranks.
//
// The table cuts a tensor into pieces of ceil(elements / shards) elements. Piece shard.at(r) lies
// on rank r. It begins in the slot of the state's version and takes as many slots as it needs.
// schedule/lasting.h has the verifier's view of this.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/cpu/pool.h"
#include "fpdt/spec/model.h"
#include "fpdt/train/ranks.h"

namespace fpdt {

// Returns the row of the table, or null. Kinds: parameter, master, moment1, moment2, gradient.
const State* find_state(const Schedule& schedule, std::string_view tensor, std::string_view kind);

// Throws InputError when the table and the model name different tensors, or their shapes differ.
void require_states(const Schedule& schedule, const ModelSpec& model);

// Returns the whole tensor, row-major. Precondition: the ranks that hold its shards are present.
std::vector<float> read_state(const Ranks& ranks, const State& state);

// Sets the tensor on every present rank, rounded to the buffer's type.
void write_state(const Ranks& ranks, const State& state, std::span<const float> values);

// Writes the elements of a tensor from `first` on into `values`. Many threads call it at once, each
// for its own part.
using Elements = std::function<void(std::int64_t first, std::span<float> values)>;

// Sets the tensor from `elements`, which is asked only for those that present ranks hold. If the
// host can address the slots, they are written in place.
void fill_state(const Ranks& ranks, const State& state, Pool& pool, const Elements& elements);

}  // namespace fpdt
