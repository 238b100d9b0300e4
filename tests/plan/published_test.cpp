// The published policy is sound for every number of ranks, in its own proportions. The ladder leads
// from it to an answer.
#include <algorithm>

#include <gtest/gtest.h>

#include "fpdt/plan/ladder.h"
#include "fpdt/plan/methods/method.h"
#include "fpdt/plan/search.h"

#include "problems.h"

namespace fpdt::test {
namespace {

TEST(Published, HasItsProportions) {
  for (const std::int64_t ranks : {1, 2, 4}) {
    Problem problem = tiny_problem(tiny_llama(), ranks, 1 << 20);
    problem.cluster.row_multiple = 128;
    const Strategy strategy = method_named("fpdt")->published(problem, 1);
    EXPECT_TRUE(check(problem, strategy).empty());
    EXPECT_EQ(strategy.mesh.replicas, 1);
    EXPECT_EQ(strategy.tiles.chunk_tokens, 65536);
    EXPECT_EQ(strategy.tiles.ffn_rows * 2 * ranks, strategy.tiles.chunk_tokens);
    EXPECT_EQ(strategy.tiles.loss_rows * 32 * ranks, strategy.tiles.chunk_tokens);
    EXPECT_EQ(strategy.tiles.backward_order, BackwardOrder::kv_outer);
    EXPECT_FALSE(strategy.copies.duplex);
    EXPECT_FALSE(strategy.copies.overlap_all_to_all);
    EXPECT_EQ(strategy.checkpoint_every(), 1);
    EXPECT_EQ(stored_layers(problem, strategy), StoredLayers{});
    for (const double kept : strategy.layer_classes.front().keep) EXPECT_EQ(kept, 0);
    EXPECT_EQ(tidied(problem, strategy), strategy);
  }
}

TEST(Published, UlyssesIsOneChunkWhoseInputsAreOffloaded) {
  const Problem problem = tiny_problem(tiny_llama(), 4, 1 << 16);
  const Strategy strategy = method_named("ulysses")->published(problem, 1);
  EXPECT_TRUE(check(problem, strategy).empty());
  EXPECT_EQ(geometry(problem, strategy).chunks, 1);
  EXPECT_EQ(strategy.tiles.ffn_rows, 0);
  EXPECT_EQ(strategy.tiles.loss_rows, 0);
  const LayerClass& layers = strategy.layer_classes.front();
  EXPECT_EQ(layers.recompute, Recompute::from_input);
  EXPECT_EQ(layers.kept(TensorClass::layer_input), 0);
  EXPECT_EQ(layers.kept(TensorClass::kv), 1);
}

TEST(Methods, HoldWhatTheyPublish) {
  EXPECT_EQ(method_named("megatron"), nullptr);
  for (const Method* method : methods()) {
    EXPECT_EQ(method_named(method->name), method);
    EXPECT_FALSE(method->source.empty());
    for (const std::int64_t batch : {1, 4}) {
      const Problem problem = tiny_problem(tiny_llama(), 2, 1 << 20);
      const Strategy strategy = method->published(problem, batch);
      EXPECT_TRUE(check(problem, strategy).empty()) << method->name;
      EXPECT_EQ(method_of(problem, strategy), method);
      EXPECT_EQ(strategy.mesh.replicas * strategy.micro_batches, batch);
    }
  }
}

// Short sequences, ranks that do not divide the heads, chunks that are not whole rows.
TEST(Published, IsSoundWhereItsNumbersDoNotFit) {
  Problem problem = tiny_problem(tiny_llama(), 8, 1000);  // four heads
  problem.cluster.row_multiple = 3;
  const Strategy strategy = method_named("fpdt")->published(problem, 1);
  EXPECT_TRUE(check(problem, strategy).empty());
  EXPECT_EQ(strategy.mesh.replicas, 2);
  EXPECT_EQ(strategy.tiles.chunk_tokens, 1008);
  EXPECT_EQ(geometry(problem, strategy).chunks, 1);
}

// Names the parts that differ between two strategies, by what one lever may change.
TEST(Ladder, ClimbsOneLeverAtATimeToTheEnd) {
  Problem problem = timed_problem(tiny_llama(), 2, 256);
  Strategy from = method_named("fpdt")->published(problem, 1);
  from.tiles.chunk_tokens = 64;
  from = tidied(problem, from);
  const Strategy to = search(problem).best->strategy;
  const std::vector<Rung> rungs = ladder(problem, from, to);
  ASSERT_GT(rungs.size(), 3U);
  EXPECT_EQ(rungs.front().strategy, from);
  EXPECT_EQ(rungs.back().strategy, to);
  const Machine machine(problem.cluster, RateEnd::typical);
  std::vector<std::string> names;
  for (const Rung& rung : rungs) {
    EXPECT_TRUE(check(problem, rung.strategy).empty()) << rung.lever;
    EXPECT_EQ(std::count(names.begin(), names.end(), rung.lever), 0) << rung.lever;
    names.push_back(rung.lever);
  }
  // The first rung gains most: the lever of any other rung, taken first, gains less.
  const auto nanoseconds = [&](const Strategy& strategy) {
    return step_nanoseconds(problem, strategy, machine);
  };
  Strategy duplex = from;
  duplex.copies.duplex = to.copies.duplex;
  EXPECT_LE(nanoseconds(rungs[1].strategy), nanoseconds(duplex));
  Strategy ordered = from;
  ordered.tiles.backward_order = to.tiles.backward_order;
  EXPECT_LE(nanoseconds(rungs[1].strategy), nanoseconds(tidied(problem, ordered)));
}

TEST(Ladder, IsOneRungFromAStrategyToItself) {
  const Problem problem = timed_problem(tiny_llama(), 2, 256);
  const Strategy strategy = spilled(problem, 1, 64);
  const std::vector<Rung> rungs = ladder(problem, strategy, strategy);
  ASSERT_EQ(rungs.size(), 1U);
  EXPECT_EQ(rungs.front().strategy, strategy);
}

// A strategy that fits comes before one that is faster and does not fit.
TEST(Ladder, StaysWithinTheBudgetsAsLongAsItCan) {
  Problem problem = timed_problem(tiny_llama(), 1, 256);
  const Strategy from = spilled(problem, 1, 32);
  Strategy to = with_stored(problem, from, {0, problem.model.layers});
  to = tidied(problem, with_kept(to, TensorClass::attention_output, 1));
  problem.host_budget = usage(problem, from).host_node;
  ASSERT_FALSE(fits(problem, with_stored(problem, from, {0, problem.model.layers})));
  ASSERT_TRUE(fits(problem, to));
  const std::vector<Rung> rungs = ladder(problem, from, to);
  ASSERT_EQ(rungs.size(), 3U);
  for (const Rung& rung : rungs) EXPECT_TRUE(fits(problem, rung.strategy)) << rung.lever;
}

// A segment of several layers cannot store everything, however much it would gain.
TEST(Ladder, FindsASoundOrder) {
  const Problem problem = timed_problem(tiny_llama(), 1, 256);
  Strategy from = spilled(problem, 1, 32);
  from.segments = {2};
  const Strategy to = with_stored(problem, spilled(problem, 1, 32), {problem.model.layers, 0});
  ASSERT_TRUE(check(problem, from).empty());
  ASSERT_FALSE(check(problem, with_stored(problem, from, {problem.model.layers, 0})).empty());
  const std::vector<Rung> rungs = ladder(problem, from, to);
  ASSERT_EQ(rungs.size(), 3U);
  EXPECT_EQ(rungs[1].strategy.checkpoint_every(), 1);
  EXPECT_EQ(rungs.back().strategy, to);
}

// Settings that are only sound together change together.
TEST(Ladder, ChangesAtOnceWhatIsSoundOnlyTogether) {
  const Problem problem = timed_problem(tiny_llama(), 1, 256);
  const Strategy to = spilled(problem, 1, 32);
  Strategy from = to;
  from.segments = {3};  // of two layers
  from.copies.prefetch_depth = 100;
  const std::vector<Rung> rungs = ladder(problem, from, to);
  ASSERT_EQ(rungs.size(), 2U);
  EXPECT_EQ(rungs.back().strategy, to);
  EXPECT_EQ(rungs.back().lever, "prefetch_depth 100 -> 1; segments of 3 -> 1 layers");
}

}  // namespace
}  // namespace fpdt::test
