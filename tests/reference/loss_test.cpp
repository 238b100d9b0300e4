// Cross-entropy against values worked out by hand.
#include "fpdt/reference/loss.h"

#include <cmath>

#include <gtest/gtest.h>

namespace fpdt::reference {
namespace {

TEST(Loss, OfUniformLogitsIsTheLogarithmOfTheVocabulary) {
  const CrossEntropy entropy = cross_entropy(Matrix(8, 3.5), {1, 2}, 0.5);
  EXPECT_NEAR(entropy.loss, 0.5 * 2 * std::log(4.0), 1e-15);
  EXPECT_DOUBLE_EQ(entropy.dlogits[0], 0.5 * 0.25);
  EXPECT_DOUBLE_EQ(entropy.dlogits[1], 0.5 * -0.75);
  EXPECT_DOUBLE_EQ(entropy.dlogits[6], 0.5 * -0.75);
}

TEST(Loss, LeavesMaskedRowsOut) {
  const CrossEntropy entropy = cross_entropy({0, 0, 1, 9}, {0, -100}, 1);
  EXPECT_NEAR(entropy.loss, std::log(2.0), 1e-15);
  EXPECT_EQ(entropy.dlogits[2], 0);
  EXPECT_EQ(entropy.dlogits[3], 0);
}

TEST(Loss, SurvivesLargeLogits) {
  EXPECT_EQ(cross_entropy({1e4, 0}, {1}, 1).loss, 1e4);
  EXPECT_EQ(cross_entropy({-1e4, 0}, {1}, 1).loss, 0);
}

}  // namespace
}  // namespace fpdt::reference
