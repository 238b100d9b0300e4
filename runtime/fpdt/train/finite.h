// Finds values that training cannot go on from.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace fpdt {

// "moment1 of embed.weight: element 3 is nan", or "" if all are finite. `first` is the number of
// the first value.
std::string non_finite(std::span<const float> values, std::int64_t first, std::string_view name);

}  // namespace fpdt
