// Rotations against values worked out by hand.
#include "fpdt/reference/rotary.h"

#include <cmath>

#include <gtest/gtest.h>

namespace fpdt::reference {
namespace {

TEST(Rotary, TurnsPairsHalfARotationApartAndLeavesTheRest) {
  const HeadLayout layout{1, 1, 5};  // 4 of 5 dimensions rotate, in pairs (0, 2) and (1, 3)
  Matrix qkv(2 * layout.width(), 1.0);
  rotate(qkv, {0, 0}, layout, {0.5, 0.25}, Turn::forward);
  for (std::size_t i = 0; i < layout.width(); ++i) EXPECT_EQ(qkv[i], 1.0);  // position 0
  const double* q = &qkv[layout.width()];
  const double* k = q + 5;
  const double* v = k + 5;
  EXPECT_NEAR(q[0], std::cos(0.5) - std::sin(0.5), 1e-15);
  EXPECT_NEAR(q[2], std::cos(0.5) + std::sin(0.5), 1e-15);
  EXPECT_NEAR(q[1], std::cos(0.25) - std::sin(0.25), 1e-15);
  EXPECT_NEAR(q[3], std::cos(0.25) + std::sin(0.25), 1e-15);
  EXPECT_EQ(q[4], 1.0);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(k[i], q[i]);
    EXPECT_EQ(v[i], 1.0);
  }
}

TEST(Rotary, CountsFromTheStartOfTheDocument) {
  const HeadLayout layout{1, 1, 2};
  Matrix qkv(3 * layout.width(), 1.0);
  rotate(qkv, {0, 1, 1}, layout, {1.0}, Turn::forward);
  EXPECT_EQ(qkv[layout.width()], 1.0);
  EXPECT_NEAR(qkv[2 * layout.width()], std::cos(1.0) - std::sin(1.0), 1e-15);
}

TEST(Rotary, BackwardTurnIsTheInverse) {
  const HeadLayout layout{2, 1, 4};
  Matrix qkv;
  for (int i = 0; i < 48; ++i) qkv.push_back(0.1 * i);
  const Matrix before = qkv;
  rotate(qkv, {0, 0, 0}, layout, {1.0, 0.1}, Turn::forward);
  rotate(qkv, {0, 0, 0}, layout, {1.0, 0.1}, Turn::backward);
  for (std::size_t i = 0; i < qkv.size(); ++i) EXPECT_NEAR(qkv[i], before[i], 1e-15);
}

TEST(Rotary, FrequenciesArePowersOfTheta) {
  RotarySpec rotary;
  rotary.theta = 10000;
  const std::vector<double> f = rotary_frequencies(rotary, 4, 1);
  ASSERT_EQ(f.size(), 2U);
  EXPECT_EQ(f[0], 1);
  EXPECT_NEAR(f[1], 0.01, 1e-17);
}

// The numbers of Llama 3.1, whose heads have 128 dimensions.
TEST(Rotary, Llama3ScalingKeepsShortAndStretchesLongWavelengths) {
  RotarySpec rotary;
  rotary.theta = 500000;
  const std::vector<double> plain = rotary_frequencies(rotary, 128, 1);
  rotary.factor = 8;
  rotary.original_positions = 8192;
  const std::vector<double> scaled = rotary_frequencies(rotary, 128, 1);
  ASSERT_EQ(scaled.size(), 64U);
  // Pair 28 turns 4.19 times in 8192 positions, pair 29 3.41 times, pair 34 1.22, pair 35 0.997.
  EXPECT_EQ(scaled[0], plain[0]);
  EXPECT_EQ(scaled[28], plain[28]);
  EXPECT_LT(scaled[29], plain[29]);
  EXPECT_GT(scaled[34], plain[34] / 8);
  EXPECT_EQ(scaled[35], plain[35] / 8);
  EXPECT_EQ(scaled[63], plain[63] / 8);
  EXPECT_NEAR(scaled[32], 0.0005248461609929547, 1e-17);
}

TEST(Rotary, LinearScalingStretchesAll) {
  RotarySpec rotary;
  rotary.factor = 4;
  rotary.scaling = RotaryScaling::linear;
  const std::vector<double> f = rotary_frequencies(rotary, 4, 1);
  EXPECT_EQ(f[0], 0.25);
  EXPECT_NEAR(f[1], 0.0025, 1e-17);
}

// Qwen3 at four times its length: heads of 128, theta 10^6, 32768 positions. Pair 23.6 turns 32
// times in them and pair 39.7 once, so that pairs 23 to 40 lie between.
TEST(Rotary, YarnScalesBetweenTwoPairs) {
  RotarySpec rotary;
  rotary.theta = 1e6;
  const std::vector<double> plain = rotary_frequencies(rotary, 128, 1);
  rotary.factor = 4;
  rotary.scaling = RotaryScaling::yarn;
  rotary.low_frequency_factor = 1;
  rotary.high_frequency_factor = 32;
  rotary.original_positions = 32768;
  const std::vector<double> scaled = rotary_frequencies(rotary, 128, 1);
  EXPECT_EQ(scaled[23], plain[23]);
  EXPECT_NEAR(scaled[24], plain[24] * (1 - 0.75 / 17), 1e-15);
  EXPECT_NEAR(scaled[39], plain[39] * (1 - 0.75 * 16 / 17), 1e-15);
  EXPECT_EQ(scaled[40], plain[40] / 4);
}

// In sequences longer than the original ones pairs are stretched by other factors.
TEST(Rotary, LongropeStretchesEachPairByItsOwnFactor) {
  RotarySpec rotary;
  const std::vector<double> plain = rotary_frequencies(rotary, 4, 1);
  rotary.scaling = RotaryScaling::longrope;
  rotary.original_positions = 10;
  rotary.short_factors = {1, 2};
  rotary.long_factors = {4, 8};
  EXPECT_EQ(rotary_frequencies(rotary, 4, 10), (std::vector<double>{plain[0], plain[1] / 2}));
  EXPECT_EQ(rotary_frequencies(rotary, 4, 11), (std::vector<double>{plain[0] / 4, plain[1] / 8}));
}

TEST(Rotary, MagnitudeMultipliesWhatTurns) {
  const HeadLayout layout{1, 1, 3};
  Matrix qkv(layout.width(), 1.0);
  rotate(qkv, {0}, layout, {1.0}, Turn::forward, 2);
  EXPECT_EQ(qkv, (Matrix{2, 2, 1, 2, 2, 1, 1, 1, 1}));
}

}  // namespace
}  // namespace fpdt::reference
