// What a program of a user's asks: outcomes, what is near and fits, sweeps, and comparisons.
#include <algorithm>

#include <gtest/gtest.h>

#include "fpdt/io/cluster_file.h"
#include "fpdt/plan/answers/comparison.h"
#include "fpdt/plan/answers/nearest.h"
#include "fpdt/plan/answers/outcome.h"
#include "fpdt/plan/answers/sweep.h"
#include "fpdt/plan/search/longest.h"

#include "problems.h"

namespace fpdt::test {
namespace {

TEST(Outcomes, AreThoseOfThePlan) {
  const Problem problem = timed_problem(tiny_llama(), 2, 256);
  const Plan plan = make_plan(problem, spilled(problem, 1, 64));
  Outcome one = outcome(problem, plan.strategy);
  EXPECT_TRUE(one.fits);
  EXPECT_EQ(one.usage, plan.usage);
  EXPECT_EQ(one.sequence_seconds[kTypicalCase], plan.throughput[kTypicalCase].step_seconds);
  Problem tight = problem;
  tight.device_budget = plan.usage.device - Bytes{1};
  one = outcome(tight, plan.strategy);
  EXPECT_FALSE(one.fits);
  EXPECT_EQ(one.binding, Binding::device);
}

// With each one taken, something fits; with an eighth of a unit less, nothing does.
TEST(Nearest, IsNearAndFits) {
  Problem problem = timed_problem(tiny_llama(), 2, 4096);
  problem.host_budget = Bytes{180000};
  problem.cluster.devices_per_node = 2;
  ASSERT_FALSE(any_fit(problem, {}));
  const std::vector<Nearest> all = nearest_fits(problem, {}, problem.cluster);
  ASSERT_FALSE(all.empty());
  for (const Nearest& one : all) {
    Problem changed = problem;
    Problem smaller = problem;
    switch (one.what) {
      case Nearest::What::seq_len:
        changed.seq_len = one.value;
        continue;  // found by search, which uses what placement saves
      case Nearest::What::gpus:
        changed.cluster = with_devices(problem.cluster, one.value);
        smaller.cluster = with_devices(problem.cluster, one.value / 2);
        break;
      case Nearest::What::host_memory:
        changed.host_budget = Bytes{one.value};
        smaller.host_budget = Bytes{one.value / 8 * 7};
        break;
      case Nearest::What::device_memory:
        changed.device_budget = Bytes{one.value};
        smaller.device_budget = Bytes{one.value / 8 * 7};
        break;
    }
    EXPECT_TRUE(any_fit(changed, {})) << one.value;
    EXPECT_FALSE(any_fit(smaller, {})) << one.value;
  }
}

// Two nodes wait for each other through a short sequence, and hardly through a long one.
TEST(Fewer, AreFasterWhereAStepIsShort) {
  Problem problem = llama3_8b(std::int64_t{1} << 12);
  const std::string folder = FPDT_SOURCE_DIR "/configs/clusters/";
  problem.cluster = with_devices(load_cluster(folder + "h100-80g-x8.yaml"), 16);
  problem.documents = false;
  problem.host_budget = problem.cluster.host_available();
  const auto fewer = faster_on_fewer(problem, {}, search(problem));
  ASSERT_TRUE(fewer);
  EXPECT_EQ(fewer->devices, 8);
  EXPECT_EQ(fewer->nodes, 1);
  Problem smaller = problem;
  smaller.cluster = with_devices(problem.cluster, fewer->devices);
  const SearchResult alone = search(smaller);
  EXPECT_NEAR(fewer->step_seconds, static_cast<double>(alone.best->nanoseconds) * 1e-9,
              2 * SearchEffort{}.indifference * fewer->step_seconds);
  problem.seq_len *= 256;
  EXPECT_FALSE(faster_on_fewer(problem, {}, search(problem)));
}

TEST(Nearest, StrategyNeedsLessAndFits) {
  Problem problem = timed_problem(tiny_llama(), 2, 256);
  problem.device_budget = outcome(problem, spilled(problem, 1, 64)).usage.device;
  const Strategy large = spilled(problem, 1, 256);
  ASSERT_FALSE(outcome(problem, large).fits);
  const auto found = nearest_strategy(problem, large);
  ASSERT_TRUE(found);
  EXPECT_TRUE(outcome(problem, found->change.strategy).fits);
  problem.device_budget = Bytes{1};
  EXPECT_FALSE(nearest_strategy(problem, large));
}

TEST(Sweeps, AnswerEachPointAsASearchDoes) {
  const Problem problem = timed_problem(tiny_llama(), 2, 256);
  std::vector<SweepPoint> points;
  const std::vector<std::int64_t> usual = usual_values(problem, {}, Over::chunk);
  ASSERT_GT(usual.size(), 2U);
  for (const std::int64_t tokens : {usual[usual.size() - 2], usual.back()}) {
    points.push_back(sweep_point(problem, {}, Over::chunk, tokens));
  }
  answer_points(points, {});
  for (const SweepPoint& point : points) {
    ASSERT_TRUE(point.outcome);
    EXPECT_EQ(point.outcome->strategy, search(point.problem, point.pins).best->strategy);
    EXPECT_EQ(geometry(point.problem, point.outcome->strategy).chunk_rows, point.value);
  }
}

TEST(Sweeps, OverLengthsEndWithOneThatDoesNotFit) {
  Problem problem = timed_problem(tiny_llama(), 1, 128);
  problem.host_budget = usage(problem, spilled(problem, 1, 64)).host_node;
  std::vector<SweepPoint> points{sweep_point(problem, {}, Over::seq_len, 64)};
  answer_lengths(points, {});
  ASSERT_GT(points.size(), 1U);
  EXPECT_FALSE(points.back().outcome);
  for (std::size_t i = 1; i < points.size(); ++i) {
    EXPECT_TRUE(points[i - 1].outcome);
    EXPECT_EQ(points[i].value, 2 * points[i - 1].value);
  }
  EXPECT_EQ(label(Over::seq_len, points.back().value), format_tokens(points.back().value));
}

TEST(Comparisons, HaveTwoRowsAMethodAndTheAnswer) {
  const Problem problem = timed_problem(tiny_llama(), 2, 256);
  const std::vector<const Method*> some{method_named("fpdt"), method_named("ulysses")};
  const std::vector<Contender> all = contenders(problem, {}, some);
  ASSERT_EQ(all.size(), 5U);
  double best = 0;
  for (const Contender& one : all) {
    const Contended found = contend(one.on_its_gpus(problem), one);
    EXPECT_EQ(found.wasted.has_value(), one.published);
    const double seconds = found.outcome.sequence_seconds[kTypicalCase];
    if (one.published) best = seconds;
    EXPECT_LE(seconds, best) << one.name;  // a region holds what its authors published
  }
}

TEST(Comparisons, CurvesEndWhereNothingFits) {
  Problem problem = timed_problem(tiny_llama(), 1, 128);
  problem.host_budget = usage(problem, spilled(problem, 1, 64)).host_node;
  const std::vector<const Method*> one{method_named("fpdt")};
  std::vector<std::int64_t> lengths{64};
  const auto curves =
      compared_curves(problem, true, lengths, contenders(problem, {}, one), ComparisonListener{});
  ASSERT_EQ(curves.size(), 3U);
  ASSERT_GT(lengths.size(), 1U);
  for (const ComparedCurve& curve : curves) {
    for (std::size_t i = 0; i + 1 < curve.points.size(); ++i) EXPECT_TRUE(curve.points[i].fits());
  }
  const auto reaches = [&](const ComparedCurve& curve) { return curve.points.size(); };
  EXPECT_EQ(reaches(curves.back()), lengths.size());
  EXPECT_FALSE(curves.back().points.back().fits());
  EXPECT_TRUE(possible_length(problem.model, lengths.back()));
}

}  // namespace
}  // namespace fpdt::test
