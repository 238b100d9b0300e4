// Warm-up and decay.
#include "fpdt/train/learning_rate.h"

#include <algorithm>
#include <cmath>

namespace fpdt {

double LearningRate::at(std::int64_t step) const {
  if (step <= warmup) return peak * static_cast<double>(step) / static_cast<double>(warmup);
  if (minimum < 0) return peak;
  constexpr double kPi = 3.14159265358979323846;
  const auto length = static_cast<double>(std::max<std::int64_t>(1, steps - warmup));
  const double progress = std::min(1.0, static_cast<double>(step - warmup) / length);
  return minimum + (peak - minimum) * (1 + std::cos(kPi * progress)) / 2;
}

}  // namespace fpdt
