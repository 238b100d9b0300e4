// Named tensors of a schedule's state table, whole, in and out of the ranks.
//
// The one place that knows how the table cuts a tensor: piece shard.at(r) of ceil(elements /
// shards) elements lies on rank r from the slot of the state's version on, through as many slots as
// it takes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace fpdt
