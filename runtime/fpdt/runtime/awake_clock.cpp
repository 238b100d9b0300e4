// Adds up the strides of a steady clock.
#include "fpdt/runtime/awake_clock.h"

#include <algorithm>
#include <mutex>

namespace fpdt {

AwakeClock::time_point AwakeClock::now() {
  using Steady = std::chrono::steady_clock;
  static std::mutex mutex;
  static Steady::time_point last = Steady::now();
  static time_point sum;
  const std::lock_guard lock(mutex);
  const Steady::time_point real = Steady::now();
  sum += std::min<duration>(real - last, kStride);
  last = real;
  return sum;
}

}  // namespace fpdt
