// Steps with few tiles of the loss against the steps that they stand for.
#include "fpdt/plan/few_tiles.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "fpdt/plan/lower.h"
#include "fpdt/plan/search/search.h"

#include "drawn_steps.h"
#include "problems.h"

namespace fpdt {
namespace {

// Chunks of seven tiles of rows and five of words.
DrawnStep with_many_tiles(std::uint32_t seed) {
  DrawnStep step = many_chunks(seed);
  auto& [problem, strategy] = step;
  const std::int64_t factor = 16;
  problem.seq_len *= factor;
  if (problem.model.learned_positions > 0) problem.model.learned_positions *= factor;
  strategy.tiles.chunk_tokens *= factor;
  const std::int64_t rows = geometry(problem, strategy).local_rows(0);
  strategy.tiles.loss_rows = std::max<std::int64_t>(1, rows / 7);
  strategy.tiles.loss_vocabulary = problem.model.vocabulary / 5;
  return step;
}

TEST(FewTiles, ArePlacedAsMany) {
  std::int64_t compared = 0;
  for (std::uint32_t seed = 0; seed < 150; ++seed) {
    const auto [problem, strategy] = with_many_tiles(seed);
    if (!check(problem, strategy).empty() || with_few_loss_tiles(problem, strategy) == strategy) {
      continue;
    }
    ++compared;
    const Placement many = lower(problem, strategy).placement;
    const Placement few = placement_of(problem, strategy);
    for (std::size_t space = 0; space < many.space.size(); ++space) {
      EXPECT_EQ(few.space[space].arena, many.space[space].arena)
          << "seed " << seed << ", space " << space;
    }
  }
  EXPECT_GT(compared, 50);
}

// Where edges of more layers are others, so are a few of the pairs that may share.
TEST(FewLayers, AreNearlyAlwaysPlacedAsMany) {
  std::int64_t compared = 0, same = 0;
  for (std::uint32_t seed = 0; seed < 150; ++seed) {
    const auto [problem, strategy] = many_layers(seed);
    if (!check(problem, strategy).empty()) continue;
    ++compared;
    const Placement many = placement_of(problem, strategy);
    const Placement few = placement_by_few_layers(problem, strategy);
    bool equal = true;
    for (std::size_t space = 0; space < many.space.size(); ++space) {
      const auto whole = static_cast<double>(many.space[space].arena.value);
      const auto found = static_cast<double>(few.space[space].arena.value);
      equal = equal && found == whole;
      EXPECT_NEAR(found, whole, 0.05 * whole) << "seed " << seed << ", space " << space;
    }
    same += equal ? 1 : 0;
  }
  EXPECT_GT(compared, 100);
  EXPECT_GE(same, compared - 2);
}

// A search knows what a plan needs before there is one.
TEST(Planned, NeedsAndTakesWhatThePlanDoes) {
  std::int64_t compared = 0;
  for (std::uint32_t seed = 0; seed < 25; ++seed) {
    auto [problem, strategy] = with_many_tiles(seed);
    if (!check(problem, strategy).empty()) continue;
    ++compared;
    problem.cluster.rates = test::timed_problem(problem.model, 1, 64).cluster.rates;
    const Machine machine(problem.cluster, RateEnd::typical);
    const Lowered lowered = lower(problem, strategy);
    const Schedule& schedule = lowered.schedule.schedule();
    const Planned found = planned(problem, strategy, machine);
    for (std::size_t space = 0; space < found.placement.space.size(); ++space) {
      EXPECT_EQ(found.placement.space[space].arena, lowered.placement.space[space].arena)
          << "seed " << seed << ", space " << space;
    }
    EXPECT_EQ(found.nanoseconds, simulate(schedule, schedule.train, machine).nanoseconds)
        << "seed " << seed;
  }
  EXPECT_GT(compared, 10);
}

// A strategy that is given is placed in whole, even where few chunks or layers need more.
TEST(Planned, FitsWhereItsPlanDoes) {
  std::int64_t compared = 0;
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    auto [problem, strategy] = many_layers(seed);
    problem.seq_len *= 8;
    if (problem.model.learned_positions > 0) problem.model.learned_positions *= 8;
    problem.cluster.rates = test::timed_problem(problem.model, 1, 64).cluster.rates;
    strategy = canonical(problem, strategy);
    if (!check(problem, strategy).empty() || geometry(problem, strategy).chunks <= 16) continue;
    const Usage need = usage(problem, strategy, placement_of(problem, strategy));
    problem.device_budget = need.device;
    problem.host_budget = need.host_node;
    Pins pins;
    pins.strategy = strategy;
    if (fits(problem, strategy) || !possible(problem, pins)) continue;
    ++compared;
    EXPECT_TRUE(search(problem, pins, {.front = false}).best) << "seed " << seed;
  }
  EXPECT_GT(compared, 5);
}

// Launches and narrow products make many tiles slower than few, by what their sum says.
TEST(FewTiles, TakeAsLongAsManyLessTheirDifference) {
  Problem problem = test::timed_problem(test::tiny_llama(), 2, 1 << 14);
  problem.cluster.row_multiple = 1;
  const Machine machine(problem.cluster, RateEnd::typical);
  Strategy many = spilled(problem, 1, 1 << 11);
  many.tiles.loss_rows = 64;
  many.tiles.loss_vocabulary = problem.model.vocabulary / 4;
  ASSERT_EQ(format_diagnostics(check(problem, many)), "");
  const Strategy few = with_few_loss_tiles(problem, many);
  const double difference =
      loss_nanoseconds(problem, many, machine) - loss_nanoseconds(problem, few, machine);
  const auto step = [&](const Strategy& strategy) {
    return static_cast<double>(step_nanoseconds(problem, strategy, machine));
  };
  EXPECT_GT(difference, 0);
  EXPECT_NEAR((step(many) - step(few)) / difference, 1, 0.05);
}

}  // namespace
}  // namespace fpdt
