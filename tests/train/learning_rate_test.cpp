// The learning rate at the corners of its curve.
#include "fpdt/train/learning_rate.h"

#include <gtest/gtest.h>

namespace fpdt {
namespace {

TEST(LearningRate, WarmsUpToThePeakAndStays) {
  const LearningRate rate{1.0, 4, -1, 10};
  EXPECT_DOUBLE_EQ(rate.at(1), 0.25);
  EXPECT_DOUBLE_EQ(rate.at(4), 1.0);
  EXPECT_DOUBLE_EQ(rate.at(10), 1.0);
}

TEST(LearningRate, FallsByHalfACosine) {
  const LearningRate rate{1.0, 2, 0.2, 10};
  EXPECT_DOUBLE_EQ(rate.at(2), 1.0);
  EXPECT_DOUBLE_EQ(rate.at(6), 0.6);  // halfway
  EXPECT_DOUBLE_EQ(rate.at(10), 0.2);
  EXPECT_DOUBLE_EQ(rate.at(11), 0.2);
  for (std::int64_t step = 3; step <= 10; ++step) EXPECT_LT(rate.at(step), rate.at(step - 1));
}

TEST(LearningRate, WithoutWarmUpTheFirstStepIsNearThePeak) {
  EXPECT_DOUBLE_EQ((LearningRate{0.5, 0, -1, 10}.at(1)), 0.5);
  EXPECT_GT((LearningRate{0.5, 0, 0, 100}.at(1)), 0.499);
}

}  // namespace
}  // namespace fpdt
