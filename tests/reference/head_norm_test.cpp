// Norms of heads against values worked out by hand; gradient_test has their gradients.
#include "fpdt/reference/head_norm.h"

#include <cmath>

#include <gtest/gtest.h>

namespace fpdt::reference {
namespace {

TEST(HeadNorm, NormalisesQueriesAndKeysHeadByHead) {
  const HeadLayout layout{2, 1, 2};
  const Matrix q{2, 3};
  const Matrix k{5, 7};
  // Two query heads, a key head, a value head; the mean square of (3, 4) is 12.5.
  const Matrix y = head_norm({3, 4, 1, 1, 4, 3, 9, 9}, layout, {q, k, 0});
  const double root = std::sqrt(12.5);
  const Matrix expected{6 / root, 12 / root, 2, 3, 20 / root, 21 / root, 9, 9};
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], expected[i], 1e-15) << i;
}

TEST(HeadNorm, EpsilonBoundsASmallHead) {
  const HeadLayout layout{1, 1, 1};
  const Matrix one{1};
  EXPECT_NEAR(head_norm({0, 1, 1}, layout, {one, one, 3})[1], 0.5, 1e-15);
  EXPECT_EQ(head_norm({0, 1, 1}, layout, {one, one, 3})[0], 0);
}

}  // namespace
}  // namespace fpdt::reference
