// Integer arithmetic: exact where it is defined, an abort where it is not.
#include "fpdt/base/math.h"

#include <limits>

#include <gtest/gtest.h>

namespace fpdt {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

TEST(math, divides_as_its_names_say) {
  EXPECT_EQ(div_ceil(0, 4), 0);
  EXPECT_EQ(div_ceil(1, 4), 1);
  EXPECT_EQ(div_ceil(8, 4), 2);
  EXPECT_EQ(div_ceil(kMax, 1), kMax);
  EXPECT_EQ(div_exact(-12, 4), -3);
  EXPECT_EQ(round_up(0, 256), 0);
  EXPECT_EQ(round_up(257, 256), 512);
}

TEST(math, multiplies_and_adds_to_the_edge) {
  EXPECT_EQ(mul(kMax, 1), kMax);
  EXPECT_EQ(mul(std::int64_t{1} << 31, std::int64_t{1} << 31), std::int64_t{1} << 62);
  EXPECT_EQ(add(kMax, -kMax), 0);
}

using MathDeathTest = ::testing::Test;

TEST(MathDeathTest, overflow_aborts) {
  EXPECT_DEATH(mul(std::int64_t{1} << 32, std::int64_t{1} << 31), "internal error.*overflow");
  EXPECT_DEATH(add(kMax, 1), "internal error.*overflow");
  EXPECT_DEATH(round_up(kMax, 2), "internal error.*overflow");
}

TEST(MathDeathTest, a_division_that_means_nothing_aborts) {
  EXPECT_DEATH(div_ceil(-1, 4), "internal error");
  EXPECT_DEATH(div_ceil(1, 0), "internal error");
  EXPECT_DEATH(div_exact(13, 4), "internal error");
  EXPECT_DEATH(div_exact(13, 0), "internal error");
}

}  // namespace
}  // namespace fpdt
