// The answer does not depend on the guess, and a good guess needs two tries.
#include "fpdt/base/largest.h"

#include <gtest/gtest.h>

namespace fpdt {
namespace {

TEST(Largest, IsFoundFromEveryGuess) {
  for (std::int64_t most = 0; most <= 20; ++most) {
    for (std::int64_t answer = 0; answer <= most; ++answer) {
      for (std::int64_t guess = -3; guess <= most + 3; ++guess) {
        std::int64_t tries = 0;
        const auto fits = [&](std::int64_t n) {
          ++tries;
          EXPECT_GE(n, 1);
          EXPECT_LE(n, most);
          return n <= answer;
        };
        EXPECT_EQ(largest_that_fits(most, guess, fits), answer);
        EXPECT_LE(tries, guess == answer ? 2 : 9) << most << " " << answer << " " << guess;
      }
    }
  }
}

TEST(Largest, TakesFewTriesFromAfar) {
  std::int64_t tries = 0;
  const auto fits = [&](std::int64_t n) { return ++tries, n <= 777'777; };
  EXPECT_EQ(largest_that_fits(1'000'000, 1, fits), 777'777);
  EXPECT_LE(tries, 41);
}

}  // namespace
}  // namespace fpdt
