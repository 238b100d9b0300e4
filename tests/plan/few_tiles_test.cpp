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
