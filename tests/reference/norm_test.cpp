// Norms against values worked out by hand.
#include "fpdt/reference/norm.h"

#include <cmath>

#include <gtest/gtest.h>

namespace fpdt::reference {
namespace {

TEST(Norm, RmsDividesByTheRootMeanSquare) {
  const Matrix y = norm(NormFamily::rms, 0.5, {3, 4, 0, 1}, {2, 10}, {});
  const double rate = 1 / std::sqrt(12.5 + 0.5);
  EXPECT_NEAR(y[0], 3 * rate * 2, 1e-15);
  EXPECT_NEAR(y[1], 4 * rate * 10, 1e-14);
  EXPECT_EQ(y[2], 0);
  EXPECT_NEAR(y[3], 10, 1e-14);  // mean square 0.5 + epsilon 0.5 = 1
}

TEST(Norm, LayerSubtractsTheMeanAndDividesByTheBiasedDeviation) {
  const Matrix y = norm(NormFamily::layer, 3, {1, 3}, {5, 7}, {100, 200});
  EXPECT_NEAR(y[0], 100 - 5.0 / 2, 1e-13);  // variance 1 + epsilon 3 = 4
  EXPECT_NEAR(y[1], 200 + 7.0 / 2, 1e-13);
}

}  // namespace
}  // namespace fpdt::reference
