// The learning rate of each step: a linear warm-up, then constant, or half a cosine down to a
// minimum (Loshchilov and Hutter, arXiv 1608.03983).
#pragma once

#include <cstdint>

namespace fpdt {

struct LearningRate {
  double peak = 1e-3;
  std::int64_t warmup = 0;  // steps; the first one uses peak / warmup
  double minimum = -1;      // reached at step `steps`; negative: the rate stays at the peak
  std::int64_t steps = 0;   // where the decay ends; 0: no decay

  // The rate of step t = 1, 2, ...
  [[nodiscard]] double at(std::int64_t step) const;
};

}  // namespace fpdt
