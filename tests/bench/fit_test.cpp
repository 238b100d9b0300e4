// Fits rates to made-up seconds, for which the rates are known.
#include "fpdt/bench/fit.h"

#include <gtest/gtest.h>

namespace fpdt {
namespace {

// Sums and quotients of a few doubles.
constexpr double kRounding = 1e-12;

Timing sample(double flops, double pairs, std::int64_t size, const std::vector<double>& seconds) {
  Timing made;
  made.asked.flops = flops;
  made.asked.pairs = pairs;
  made.asked.size = size;
  made.seconds = seconds;
  return made;
}

TEST(Fit, SpreadIsTheLowerQuartileWithTheEnds) {
  const Rate nine = spread({9, 1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(nine, (Rate{3, 1, 9}));
  EXPECT_EQ(spread({4}), (Rate{4, 4, 4}));
}

TEST(Fit, TheFastestTimeIsTheHighestSpeed) {
  EXPECT_EQ(speed(12, {2, 3, 4, 6, 6}), (Rate{4, 2, 6}));
}

TEST(Fit, ProductsOfTheBestSizeAreTheRate) {
  const Shared fit = fit_products({{sample(10, 0, 32, {1}), sample(10, 0, 32, {3})},
                                   {sample(40, 0, 64, {2}), sample(20, 0, 64, {1})},
                                   {sample(90, 0, 128, {6}), sample(30, 0, 128, {2})}});
  EXPECT_EQ(fit.rate, (Rate{20, 20, 20}));
  ASSERT_EQ(fit.shares.size(), 3U);
  EXPECT_EQ(fit.shares[0], (SizeShare{32, 0.25}));  // 20 flops in 4 seconds
  EXPECT_EQ(fit.shares[1], (SizeShare{64, 1}));
  EXPECT_EQ(fit.shares[2], (SizeShare{128, 0.75}));
}

TEST(Fit, TheFastestSizeIsTheRate) {
  const Shared fit = fit_sizes({{1, {2}}, {8, {10, 4, 6, 8}}, {64, {3, 3}}});
  EXPECT_EQ(fit.rate, (Rate{4, 4, 10}));
  EXPECT_EQ(fit.shares,
            (std::vector<SizeShare>{SizeShare{1, 0.5}, SizeShare{8, 1}, SizeShare{64, 0.75}}));
}

// Tiles that take flops / 100 + pairs / 50 seconds, the small ones twice that.
TEST(Fit, TilesTellSoftmaxAndFlopsApart) {
  const auto seconds = [](double flops, double pairs) { return flops / 100 + pairs / 50; };
  const TileFit fit = fit_tiles(
      sample(400, 100, 9, {seconds(400, 100)}), sample(1600, 100, 9, {seconds(1600, 100)}),
      {sample(80, 10, 4, {2 * seconds(80, 10)}), sample(800, 100, 8, {seconds(800, 100)})});
  EXPECT_NEAR(fit.rate.typical, 100, 100 * kRounding);
  EXPECT_NEAR(fit.softmax.typical, 50, 50 * kRounding);
  ASSERT_EQ(fit.shares.size(), 2U);
  EXPECT_NEAR(fit.shares[0].share, 0.5, kRounding);
  EXPECT_NEAR(fit.shares[1].share, 1, kRounding);
}

// Large tiles that take half of what flops / 100 + pairs / 50 says.
TEST(Fit, TilesOfTheFastestSizeAreTheRate) {
  const auto seconds = [](double flops, double pairs) { return flops / 100 + pairs / 50; };
  const TileFit fit = fit_tiles(
      sample(400, 100, 9, {seconds(400, 100)}), sample(1600, 100, 9, {seconds(1600, 100)}),
      {sample(80, 10, 4, {seconds(80, 10)}), sample(800, 100, 8, {seconds(800, 100) / 2})});
  EXPECT_NEAR(fit.rate.typical, 200, 200 * kRounding);
  EXPECT_NEAR(fit.softmax.typical, 100, 100 * kRounding);
  EXPECT_NEAR(fit.shares[0].share, 0.5, kRounding);
  EXPECT_NEAR(fit.shares[1].share, 1, kRounding);
}

TEST(Fit, TilesWhoseFlopsExplainEverythingHaveNoSoftmax) {
  const TileFit fit =
      fit_tiles(sample(400, 100, 9, {3}), sample(1600, 100, 9, {16}), {sample(800, 100, 8, {10})});
  EXPECT_EQ(fit.softmax, Rate{});
  EXPECT_NEAR(fit.rate.typical, 100, 100 * kRounding);
  EXPECT_NEAR(fit.shares.front().share, 0.8, kRounding);
}

TEST(Fit, PaceIsTheSlowdownAndNeverASpeedup) {
  EXPECT_EQ(fit_pace({2}, {4}), (Rate{0.5, 0.5, 0.5}));
  EXPECT_EQ(fit_pace({2}, {1}), (Rate{1, 1, 1}));
  EXPECT_EQ(fit_pace({2}, {1, 4, 8, 8, 8}), (Rate{0.5, 0.25, 1}));
}

TEST(Fit, RoundsToFourDigits) {
  Rates rates;
  rates.matmul = {123456789.0, 12.3456789, 0.000123456789};
  rates.kinds.push_back({"norm", {99999, 1, 1}});
  rates.matmul_shares = {{64, 1.0 / 3}};
  const Rates round = rounded(rates);
  EXPECT_EQ(round.matmul, (Rate{123500000, 12.35, 0.0001235}));
  EXPECT_EQ(round.kinds.front().bytes_per_second.typical, 100000);
  EXPECT_EQ(round.matmul_shares.front().share, 0.3333);
}

// An H200's attention forward, fitted to two sizes of heads.
TEST(Fit, AttentionBesideASoftmaxDoesNotRaiseThePeak) {
  Rates rates;
  rates.peak_flops = 989e12;
  rates.attention_forward = rates.attention_backward = {1.094e15, 1.088e15, 1.109e15};
  rates.softmax_forward = rates.softmax_backward = {2.9e12, 2.9e12, 2.9e12};
  EXPECT_EQ(rounded(rates).peak_flops, 989e12);
  rates.softmax_backward = {};
  EXPECT_EQ(rounded(rates).peak_flops, 1.094e15);
}

}  // namespace
}  // namespace fpdt
