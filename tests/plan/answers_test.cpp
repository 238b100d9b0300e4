// What a program of a user's asks: outcomes, what is near and fits, sweeps, and comparisons.
#include <algorithm>

#include <gtest/gtest.h>

#include "fpdt/io/cluster_file.h"
#include "fpdt/plan/answers/comparison.h"
#include "fpdt/plan/answers/nearest.h"
#include "fpdt/plan/answers/outcome.h"
#include "fpdt/plan/answers/sweep.h"
#include "fpdt/plan/fit.h"
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
  EXPECT_TRUE(possible_length(problem, {}, lengths.back()));
}

// Where nothing fits, and where the model has no positions for a row multiple on each rank.
TEST(Comparisons, HaveALengthWhateverFits) {
  Problem problem = timed_problem(tiny_llama(), 2, 64);
  problem.device_budget = Bytes{1};
  for (const std::int64_t multiple : {1, 8, 1 << 20}) {
    problem.cluster.row_multiple = multiple;
    EXPECT_FALSE(doubling_lengths(problem, {}).empty()) << multiple;
  }
  problem = timed_problem(tiny_gpt(), 2, 64);
  problem.model.learned_positions = 100;
  problem.cluster.row_multiple = 64;
  EXPECT_EQ(doubling_lengths(problem, {}), std::vector<std::int64_t>{100});
  EXPECT_EQ(usual_values(problem, {}, Over::seq_len), std::vector<std::int64_t>{100});
}

// Rows of methods answer the question that was asked.
TEST(Comparisons, RowsHaveTheGradientsAndTheReplicasThatArePinned) {
  const Problem problem = timed_problem(tiny_llama(), 2, 64);
  const Pins pins{.batch = 2, .data_parallel = 2, .gradients = Storage::bf16};
  for (const Contender& contender : contenders(problem, pins)) {
    EXPECT_EQ(contender.pins.gradients, Storage::bf16) << contender.name;
    EXPECT_EQ(contender.pins.data_parallel, 2) << contender.name;
    EXPECT_EQ(contender.pins.batch, 2) << contender.name;
  }
}

// The processes of more devices leave less of a node's memory. A budget that was given stays.
TEST(Sweeps, OtherMachinesHaveTheHostMemoryOfTheirOwn) {
  Problem problem = timed_problem(tiny_llama(), 4, 256);
  problem.cluster.devices_per_node = 4;
  problem.cluster.host_memory = Bytes{1 << 30};
  problem.cluster.host_outside.process = Bytes{1 << 20};
  problem.host_budget = problem.cluster.host_available();
  const Bytes of_one = with_devices(problem.cluster, 1).host_available();
  ASSERT_GT(of_one, problem.host_budget);
  for (const Over over : {Over::gpus, Over::weak_scaling}) {
    EXPECT_EQ(sweep_point(problem, {}, over, 1).problem.host_budget, of_one);
  }
  problem.host_budget = Bytes{1 << 28};
  EXPECT_EQ(sweep_point(problem, {}, Over::gpus, 1).problem.host_budget, Bytes{1 << 28});
}

// The limit of chunks ends the lengths of a pinned chunk, and is no error.
TEST(Longest, EndsWhereChunksAreTooMany) {
  const Problem problem = timed_problem(tiny_llama(), 2, 256);
  const Pins pins{.chunk_tokens = 32};
  const std::int64_t longest = longest_sequence(problem, pins);
  EXPECT_LE(longest, kChunksMost * 32);
  EXPECT_GE(longest, kChunksMost * 32 / 64 * 63);
}

// A sequence of one chunk has no third one, from which such a strategy stores.
TEST(Longest, OfAStrategyThatNamesALaterChunk) {
  const Problem problem = timed_problem(tiny_llama(), 2, 256);
  const Strategy strategy =
      with_stored_from(problem, spilled(problem, 1, 64), {2, problem.model.layers});
  ASSERT_EQ(strategy.layer_classes.front().first_stored_chunk, 2);
  EXPECT_GT(longest_sequence(problem, {.strategy = strategy}), 2 * 64);
}

}  // namespace
}  // namespace fpdt::test
