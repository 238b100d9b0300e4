// Attention on sequences small enough to do by hand.
#include "fpdt/reference/attention.h"

#include <cmath>

#include <gtest/gtest.h>

namespace fpdt::reference {
namespace {

TEST(Attention, FirstTokenOfADocumentSeesItselfOnly) {
  const HeadLayout layout{1, 1, 2};
  // per token: q, k, v of two dimensions
  const Matrix qkv{1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  EXPECT_EQ(attention(qkv, {0, 1, 2}, layout), (Matrix{5, 6, 2, 3, 8, 9}));
}

TEST(Attention, WeighsValuesBySoftmaxOfScaledScores) {
  const HeadLayout layout{1, 1, 4};
  // The second query scores 0 and 2 ln 3 against the keys: ln 3 once scaled by 1/sqrt(4), so the
  // weights are 1/4 and 3/4.
  const double ln3 = std::log(3.0);
  const Matrix qkv{9, 9, 9, 9, 0,   1, 0, 0, 4, 8, 0, 0,  //
                   2, 0, 0, 0, ln3, 0, 0, 0, 8, 0, 0, 4};
  const Matrix out = attention(qkv, {0, 0}, layout);
  EXPECT_NEAR(out[4], 0.25 * 4 + 0.75 * 8, 1e-14);
  EXPECT_NEAR(out[5], 0.25 * 8, 1e-14);
  EXPECT_NEAR(out[6], 0, 1e-14);
  EXPECT_NEAR(out[7], 0.75 * 4, 1e-14);
}

// A window is a document that begins with the oldest token of each query.
TEST(Attention, WindowsHoldTheLastTokens) {
  const HeadLayout layout{1, 1, 1};
  const Matrix qkv{1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3};
  EXPECT_EQ(attention(qkv, {0, 0, 0, 0}, layout, {1}), (Matrix{3, 6, 9, 3}));
  EXPECT_EQ(attention(qkv, {0, 0, 0, 0}, layout, {2}), attention(qkv, {0, 0, 1, 2}, layout));
  EXPECT_EQ(attention(qkv, {0, 0, 2, 2}, layout, {3}), attention(qkv, {0, 0, 2, 2}, layout));
  EXPECT_EQ(attention(qkv, {0, 0, 0, 0}, layout, {4}), attention(qkv, {0, 0, 0, 0}, layout));
}

// A key of score ln 2 and value 0 that every query sees.
TEST(Attention, SinksTakeTheirShare) {
  const HeadLayout layout{2, 2, 1};
  const Matrix qkv{0, 0, 0, 0, 3, 6, 0, 0, 0, 0, 6, 12};  // all scores are 0
  const Matrix out = attention(qkv, {0, 0}, layout, {0, {std::log(2.0), -1e9}});
  const Matrix expected{3.0 / 3, 6, (3.0 + 6) / 4, 9};
  for (std::size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], expected[i], 1e-14) << i;
}

TEST(Attention, ConsecutiveQueryHeadsShareAKvHead) {
  const HeadLayout layout{4, 2, 1};
  const Matrix one_token{1, 1, 1, 1, 2, 2, 50, 60};
  EXPECT_EQ(attention(one_token, {0}, layout), (Matrix{50, 50, 60, 60}));
}

TEST(Attention, SurvivesLargeScores) {
  const HeadLayout layout{1, 1, 1};
  const Matrix out = attention({1, 1000, 3, 1000, 2000, 7}, {0, 0}, layout);
  EXPECT_EQ(out[1], 7);
}

}  // namespace
}  // namespace fpdt::reference
