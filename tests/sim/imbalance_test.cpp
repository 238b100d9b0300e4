// The sum over classes of ranks is that over all ranks.
#include "fpdt/sim/imbalance.h"

#include <array>
#include <numeric>
#include <string>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/plan/lowering/lower_ops.h"

#include "problems.h"

namespace fpdt {
namespace {

// By rank.
std::vector<std::array<double, kWorks>> flops_of(const Schedule& schedule,
                                                 const std::vector<std::int64_t>& calls) {
  std::vector<std::array<double, kWorks>> flops(static_cast<std::size_t>(schedule.ranks));
  for (std::int64_t rank = 0; rank < schedule.ranks; ++rank) {
    const auto all = demands(schedule, rank);
    for (std::size_t b = 0; b < all.size(); ++b) {
      for (const Demand& demand : all[b]) {
        flops[static_cast<std::size_t>(rank)][static_cast<std::size_t>(demand.work)] +=
            demand.flops * static_cast<double>(calls[b]);
      }
    }
  }
  return flops;
}

void expect_sums_over_ranks(const Schedule& schedule, const std::string& what) {
  std::vector<std::int64_t> calls;
  for (std::size_t b = 0; b < schedule.blocks.size(); ++b) {
    calls.push_back(1 + static_cast<std::int64_t>(b) % 3);
  }
  const auto flops = flops_of(schedule, calls);
  const Imbalance found = imbalance_of(schedule, calls);
  const auto total = [&](std::size_t rank) {
    return std::accumulate(flops[rank].begin(), flops[rank].end(), 0.0);
  };
  const auto heaviest = static_cast<std::size_t>(found.heaviest);
  for (std::size_t rank = 0; rank < flops.size(); ++rank) {
    EXPECT_LE(total(rank), total(heaviest)) << what;
    if (rank < heaviest) {
      EXPECT_LT(total(rank), total(heaviest)) << what;
    }
  }
  for (std::size_t work = 0; work < kWorks; ++work) {
    double mean = 0;
    for (const auto& own : flops) mean += own[work] / static_cast<double>(flops.size());
    EXPECT_NEAR(found.spare[work], flops[heaviest][work] - mean, 1e-9 * (1 + mean)) << what;
  }
}

TEST(Imbalance, IsThatOfAllRanks) {
  int unequal = 0;
  for (int corner = 0; corner < 144; ++corner) {
    const std::int64_t ring = 1 + corner % 4, heads = 1 + corner / 4 % 2;
    const Problem problem = test::tiny_problem(test::tiny_llama(), ring * heads, 59 + corner % 3);
    Strategy strategy =
        test::tiny_strategy(std::array{8, 17, 24}[static_cast<std::size_t>(corner / 8 % 3)]);
    strategy.mesh.ring = ring;
    strategy.keys = corner / 24 % 2 == 0 ? Keys::ring : Keys::gathered;
    strategy.layout = corner / 48 % 3 == 0 ? Layout::interleaved : Layout::zigzag;
    if (!check(problem, strategy).empty()) continue;
    const Schedule schedule = lower_ops(problem, strategy);
    expect_sums_over_ranks(schedule, fmt::format("corner {}", corner));
    const Imbalance found =
        imbalance_of(schedule, std::vector<std::int64_t>(schedule.blocks.size(), 1));
    if (found.spare[static_cast<std::size_t>(Work::attention_forward)] > 0) ++unequal;
  }
  EXPECT_GE(unequal, 20);
}

// Positions that no lowering writes: a shift that is left out, and one with other flops.
TEST(Imbalance, IsThatOfAllRanksWhereARingIsNotWhole) {
  const Problem problem = test::tiny_problem(test::tiny_llama(), 4, 64);
  Strategy strategy = test::tiny_strategy(16);
  strategy.mesh.ring = 4;
  strategy.keys = Keys::ring;
  Schedule schedule = lower_ops(problem, strategy);
  int met = 0;
  for (Block& block : schedule.blocks) {
    for (Op& op : block.ops) {
      auto* const tile = std::get_if<AttentionForward>(&op.body);
      if (tile == nullptr || is_constant(tile->k_first)) continue;
      if (++met % 7 == 0) tile->head_dim *= 2;
      if (met % 5 == 0) tile->k_first.first.s = 0;
    }
  }
  EXPECT_GT(met, 14);
  expect_sums_over_ranks(schedule, "by hand");
}

}  // namespace
}  // namespace fpdt
