// The bytes of gathered experts in a schedule are those of the formula.
#include "fpdt/plan/experts_traffic.h"

#include <gtest/gtest.h>

#include "fpdt/plan/lower.h"

#include "problems.h"

namespace fpdt {
namespace {

ExpertsTraffic traffic_of(const Problem& problem, const Strategy& strategy) {
  return experts_traffic(problem, strategy, lower(problem, strategy).schedule.schedule());
}

TEST(ExpertsTraffic, IsThatOfItsTensors) {
  ModelSpec model = test::tiny_llama();
  model.experts = 4;
  model.active_experts = 2;
  const std::int64_t ranks = 2, matrices = 4 * (model.up_width() + model.feed_forward);
  for (const std::int64_t micro_batches : {1, 3}) {
    Strategy strategy = test::tiny_strategy(8);
    strategy.zero = 3;
    strategy.micro_batches = micro_batches;
    const Problem problem = test::tiny_problem(model, ranks, 32);
    const ExpertsTraffic found = traffic_of(problem, strategy);
    const std::int64_t element = strategy.storage == Storage::f32 ? 4 : 2;
    // Half of each tensor goes to the other rank, in forward and in backward, and half of its sum.
    // Backward of the last layer follows its forward, and gathers nothing.
    const std::int64_t once = matrices * model.hidden / ranks;
    EXPECT_EQ(found.gathered, micro_batches * once * (model.layers * (2 * element + 4) - element));
    EXPECT_EQ(found.tokens_of_rank, 16);
    // Of two rows for each token and layer, half leave the rank and come back, twice.
    EXPECT_EQ(found.tokens, micro_batches * 4 * 16 * 2 * model.layers * model.hidden * element / 2);
    EXPECT_EQ(found.crossing, (found.gathered * 16 + found.tokens - 1) / found.tokens);
  }
}

// Each tile gathers all matrices in forward and in backward, and sums their gradients; or each
// extent does, with slices outside.
TEST(ExpertsTraffic, OfSlicesIsThatOfTheOuterLoop) {
  ModelSpec model = test::tiny_llama();
  model.experts = 4;
  model.active_experts = 2;
  const std::int64_t ranks = 2, matrices = 4 * (model.up_width() + model.feed_forward);
  for (const std::int64_t slices : {2, 4}) {
    Strategy strategy = test::tiny_strategy(8);
    strategy.zero = 3;
    strategy.tiles.ffn_rows = 2;
    strategy.tiles.expert_slices = slices;
    const Problem problem = test::tiny_problem(model, ranks, 32);
    const std::int64_t element = strategy.storage == Storage::f32 ? 4 : 2;
    const std::int64_t once = (2 * element + 4) * matrices * model.hidden / ranks * model.layers;
    const std::int64_t rows = 32 / ranks;
    for (const Extent extent : {Extent::chunk, Extent::whole}) {
      strategy.extent = extent;
      const std::int64_t extents = extent == Extent::whole ? 1 : rows / 4;
      for (const ExpertLoop loop : {ExpertLoop::tiles, ExpertLoop::slices}) {
        strategy.tiles.expert_loop = loop;
        const ExpertsTraffic found = traffic_of(problem, strategy);
        EXPECT_EQ(found.loop, loop);
        EXPECT_EQ(found.crossing, 0) << "both grow with the tokens";
        EXPECT_EQ(found.loops.tiles_outside, rows / 2 * once);
        EXPECT_EQ(found.loops.slices_outside, extents * once);
        EXPECT_EQ(found.gathered, loop == ExpertLoop::tiles ? found.loops.tiles_outside
                                                            : found.loops.slices_outside);
        // Of each tile but one: logits, routes, weights with their gradient, and f32 sums of rows.
        const std::int64_t row = 4 + 2 * 2 + 2 * 2 + model.hidden, ends = 4;
        EXPECT_GE(found.loops.open_tiles, (rows / extents / 2 - 1) * 4 * (2 * row + ends));
      }
    }
    // One tile has all rows.
    strategy.tiles.ffn_rows = 0;
    strategy.extent = Extent::chunk;
    strategy.tiles.expert_loop = ExpertLoop::tiles;
    EXPECT_EQ(traffic_of(problem, strategy).loops.open_tiles, 0);
  }
}

TEST(ExpertsTraffic, CrossesWhereTheRecordSays) {
  ModelSpec model = test::tiny_llama();  // Qwen3 30B A3B in bf16: 3 X F / k
  model.experts = 128;
  model.active_experts = 8;
  model.feed_forward = 768;
  model.layers = 40;  // backward of the last gathers nothing
  Strategy strategy = test::tiny_strategy(8);
  strategy.storage = Storage::bf16;
  const Problem problem = test::tiny_problem(model, 2, 32);
  const auto crossing = static_cast<double>(traffic_of(problem, strategy).crossing);
  EXPECT_NEAR(crossing, 3 * 128 * 768 / 8, 0.01 * crossing);
}

}  // namespace
}  // namespace fpdt
