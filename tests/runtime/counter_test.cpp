// Counters that threads wait for: numbers wrap around, and no wake-up is lost.
#include "fpdt/cpu/counter.h"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace fpdt {
namespace {

TEST(Counter, TellsHowFarItIs) {
  Counter counter;
  EXPECT_EQ(counter.await(0, 0), 0U);
  counter.advance(7);
  EXPECT_EQ(counter.await(3, 0), 7U);
  EXPECT_EQ(counter.await(7, 0), 7U);
}

TEST(Counter, WrapsAround) {
  Counter counter;
  counter.advance(Counter::kMask);
  EXPECT_EQ(counter.await(Counter::kMask - 1, 0), Counter::kMask);
  counter.advance(Counter::kMask + 2);
  EXPECT_EQ(counter.await(Counter::kMask, 0), 1U);  // 2^31 + 1
}

// Two sleepers follow a number that advances in small and in large steps. No wake-up may be lost.
TEST(Counter, WakesAllThatSleep) {
  Counter there;
  Counter back;
  constexpr std::uint32_t kTurns = 3000;
  const auto follow = [&](Counter* answer) {
    for (std::uint32_t turn = 1; turn <= kTurns; ++turn) {
      there.await(turn, 0);
      if (answer != nullptr) answer->advance(turn);
    }
  };
  std::thread first(follow, &back);
  std::thread second(follow, nullptr);
  for (std::uint32_t turn = 1; turn <= kTurns; ++turn) {
    there.advance(turn);
    back.await(turn, turn % 2 == 0 ? 100 : 0);
  }
  first.join();
  second.join();
}

}  // namespace
}  // namespace fpdt
