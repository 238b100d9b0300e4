// Frequencies in double precision, because positions reach 10^7.
#include "fpdt/runtime/rotary.h"

#include <algorithm>
#include <cmath>

namespace fpdt {
namespace {

constexpr double kTurn = 6.283185307179586476925;

// The pairs over which yarn's share falls from 1 to 0: from the pair that turns high_factor times
// in the original positions to the one that turns low_factor times, rounded outwards unless exact.
struct YarnRange {
  double first, last;

  explicit YarnRange(const Rotary& rotary) {
    const auto dimensions = static_cast<double>(rotary.rotary);
    const auto pair = [&](double turns) {
      const double wavelength = static_cast<double>(rotary.original_positions) / turns;
      return dimensions * std::log(wavelength / kTurn) / (2 * std::log(rotary.theta));
    };
    const bool exact = rotary.scaling == ScalingKind::yarn_exact;
    const double high = pair(rotary.high_factor), low = pair(rotary.low_factor);
    first = std::max(0.0, exact ? high : std::floor(high));
    last = std::min(dimensions - 1, exact ? low : std::ceil(low));
    if (first == last) last += 0.001;
  }
};

// The share of a pair's frequency that is kept. The rest is divided by the factor.
double kept_share(const Rotary& rotary, std::int64_t pair, double frequency) {
  switch (rotary.scaling) {
    case ScalingKind::llama3: {
      const double turns = static_cast<double>(rotary.original_positions) * frequency / kTurn;
      const double smooth = (turns - rotary.low_factor) / (rotary.high_factor - rotary.low_factor);
      return std::clamp(smooth, 0.0, 1.0);
    }
    case ScalingKind::linear:
    case ScalingKind::longrope:
      return 0;
    case ScalingKind::yarn:
    case ScalingKind::yarn_exact: {
      const YarnRange range(rotary);
      const double ramp = (static_cast<double>(pair) - range.first) / (range.last - range.first);
      return 1 - std::clamp(ramp, 0.0, 1.0);
    }
  }
  return 1;
}

}  // namespace

double rotary_frequency(const Rotary& rotary, std::int64_t pair) {
  const double exponent = -2.0 * static_cast<double>(pair) / static_cast<double>(rotary.rotary);
  const double frequency = std::pow(rotary.theta, exponent);
  if (!rotary.factors.empty()) return frequency / rotary.factors[static_cast<std::size_t>(pair)];
  if (rotary.factor == 1) return frequency;
  const double share = kept_share(rotary, pair, frequency);
  return frequency * (share + (1.0 - share) / rotary.factor);
}

}  // namespace fpdt
