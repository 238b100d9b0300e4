// Initial weights from a counter: a value depends on the seed, the tensor's full name and the
// element's index in it alone, so every sharding of a model, and the reference, start from the same
// numbers.
#pragma once

#include <cstdint>
#include <string_view>

#include "fpdt/spec/model.h"

namespace fpdt {

// FNV-1a (64 bits) of the full name, "layers.3.qkv.weight".
std::uint64_t tensor_name_hash(std::string_view name);

// Normal with the tensor's deviation, or its `fill` when the deviation is 0.
double initial_value(std::uint64_t seed, std::uint64_t name_hash, std::int64_t element,
                     const TensorSpec& tensor);

}  // namespace fpdt
