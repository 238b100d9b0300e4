// Finds where something stops fitting.
#pragma once

#include <algorithm>
#include <cstdint>

namespace fpdt {

// The largest of 0 .. most that fits. 0 does, and nothing does that is larger than what does not.
// Tries the guess, goes on from it in steps that double until the answer lies between, then halves.
template <class Fits>
std::int64_t largest_that_fits(std::int64_t most, std::int64_t guess, Fits fits) {
  std::int64_t low = 0, high = most + 1;
  std::int64_t step = 1;
  for (std::int64_t next = std::clamp<std::int64_t>(guess, 1, high); high - low > 1; step *= 2) {
    next = std::clamp(next, low + 1, high - 1);
    (fits(next) ? low : high) = next;
    const bool between = low > 0 && high <= most;
    next = between ? low + (high - low) / 2 : low > 0 ? low + step : high - step;
  }
  return low;
}

}  // namespace fpdt
