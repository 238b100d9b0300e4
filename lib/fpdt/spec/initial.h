// Initial weights from a counter: a value depends only on the seed, the tensor's full name and the
// element's index in it. Every sharding of a model, every number of threads, and the reference,
// start from the same numbers.
#pragma once

#include <cstdint>
#include <span>

#include "fpdt/spec/model.h"

namespace fpdt {

// Writes the elements from `first` on: normal around the tensor's `fill` with its deviation.
// `name_hash` is fnv1a of the full name, such as "layers.3.qkv.weight". The bits are the same on
// every machine.
void initial_values(std::uint64_t seed, std::uint64_t name_hash, std::int64_t first,
                    const TensorSpec& tensor, std::span<float> values);

}  // namespace fpdt
