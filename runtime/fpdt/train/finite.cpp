// Looks at the exponent, which compilers turn into vector code.
#include "fpdt/train/finite.h"

#include <bit>
#include <cmath>

#include <fmt/format.h>

namespace fpdt {
namespace {

bool is_finite(float value) {
  constexpr std::uint32_t kExponent = 0x7F800000U;
  return (std::bit_cast<std::uint32_t>(value) & kExponent) != kExponent;
}

}  // namespace

// The first pass has no branches, for speed.
std::string non_finite(std::span<const float> values, std::int64_t first, std::string_view name) {
  bool all_finite = true;
  for (const float value : values) all_finite &= is_finite(value);
  for (std::size_t i = 0; !all_finite && i < values.size(); ++i) {
    if (is_finite(values[i])) continue;
    return fmt::format("{}: element {} is {}", name, first + static_cast<std::int64_t>(i),
                       std::isnan(values[i]) ? "nan"
                       : values[i] > 0       ? "inf"
                                             : "-inf");
  }
  return {};
}

}  // namespace fpdt
