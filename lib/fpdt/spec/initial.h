// Initial weights from a counter: a value depends on the seed, the tensor's full name and the
// element's index in it alone, so every sharding of a model, every number of threads, and the
// reference, start from the same numbers.
#pragma once

#include <cstdint>
#include <span>

#include "fpdt/spec/model.h"

namespace fpdt {

// The elements from `first` on: normal around the tensor's `fill` with its deviation. `name_hash`
// is fnv1a of the full name, "layers.3.qkv.weight". The same bits on every machine.
void initial_values(std::uint64_t seed, std::uint64_t name_hash, std::int64_t first,
                    const TensorSpec& tensor, std::span<float> values);

}  // namespace fpdt
