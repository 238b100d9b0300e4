// Named tensors of a schedule's state table, whole, in and out of the ranks.
//
// How the table cuts a tensor: piece shard.at(r) of ceil(elements / shards) elements lies on rank r
// from the slot of the state's version on, through as many slots as it takes. The verifier's view
// of the same is schedule/lasting.h.
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

// The row of the table, or null. Kinds: parameter, master, moment1, moment2, gradient.
const State* find_state(const Schedule& schedule, std::string_view tensor, std::string_view kind);

// InputError when the table and the model name different tensors, or shapes differ.
void require_states(const Schedule& schedule, const ModelSpec& model);

// The whole tensor, row-major. Precondition: its shards are present.
std::vector<float> read_state(const Ranks& ranks, const State& state);

// Sets the tensor on every present rank, rounding to the buffer's type.
void write_state(const Ranks& ranks, const State& state, std::span<const float> values);

// Writes the elements of a tensor from `first` on; asked by many threads at once, a part each.
using Elements = std::function<void(std::int64_t first, std::span<float> values)>;

// The same from such elements: only those that present ranks hold are asked for, and a host that
// can address the slots writes them in their place.
void fill_state(const Ranks& ranks, const State& state, Pool& pool, const Elements& elements);

}  // namespace fpdt
