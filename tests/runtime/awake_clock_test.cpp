// A clock for deadlines counts at most a stride between two questions.
#include "fpdt/runtime/awake_clock.h"

#include <thread>

#include <gtest/gtest.h>

namespace fpdt {
namespace {

TEST(AwakeClock, CountsAStrideAtMost) {
  const AwakeClock::time_point begin = AwakeClock::now();
  std::this_thread::sleep_for(AwakeClock::kStride + std::chrono::milliseconds(300));
  const auto silent = AwakeClock::now() - begin;
  EXPECT_LE(silent, AwakeClock::kStride);
  EXPECT_GT(silent, AwakeClock::kStride / 2);
}

TEST(AwakeClock, CountsAllForWhoAsks) {
  using Steady = std::chrono::steady_clock;
  const AwakeClock::time_point begin = AwakeClock::now();
  const Steady::time_point real = Steady::now();
  while (AwakeClock::now() - begin < AwakeClock::kStride / 5) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_GE(Steady::now() - real, AwakeClock::kStride / 5);
}

}  // namespace
}  // namespace fpdt
