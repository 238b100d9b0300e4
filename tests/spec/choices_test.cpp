// What is said of choices, and what is said to have no effect is what is taken away.
#include "fpdt/spec/choices.h"

#include <gmock/gmock.h>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "problems.h"

namespace fpdt {
namespace {

// Everything that one rank with one chunk of two tokens has no use for.
Strategy burdened() {
  Strategy strategy = test::tiny_strategy(64);
  strategy.storage = Storage::f32;
  strategy.zero = 1;
  strategy.keys = Keys::gathered;
  strategy.layout = Layout::zigzag;
  strategy.key_gradients = Storage::bf16;
  strategy.tiles.long_tiles = true;
  strategy.tiles.ffn_rows = strategy.tiles.loss_rows = 64;
  strategy.tiles.loss_vocabulary = 1 << 20;
  strategy.copies.optimizer_tile = 2048;
  strategy.layer_classes.front().keep[static_cast<std::size_t>(TensorClass::ffn_hidden)] = 1;
  strategy.layer_classes.front().first_stored_chunk = 3;
  return strategy;
}

TEST(Unused, NamesWhatItTakesAway) {
  const Problem problem = test::tiny_problem(test::tiny_llama(), 1, 2);
  const Strategy without = canonical(problem, burdened());
  EXPECT_EQ(without_effect(problem, burdened()).size(), 11U);
  EXPECT_TRUE(without_effect(problem, without).empty());
  Strategy plain = test::tiny_strategy(64);
  plain.storage = Storage::f32;
  plain.zero = Strategy{}.zero;
  plain.tiles.ffn_rows = plain.tiles.loss_rows = plain.tiles.loss_vocabulary = 0;
  plain.copies.optimizer_tile = Copies{}.optimizer_tile;
  EXPECT_EQ(without, plain);
}

// Ranks that share products have the rows of all of them there, and their own in the loss.
TEST(Unused, TilesOfSharedProductsDivideTheRowsOfAllRanks) {
  const Problem problem = test::tiny_problem(test::tiny_llama(), 2, 64);
  Strategy strategy = canonical(problem, test::tiny_strategy(64));
  strategy.mesh.tensor = 2;
  strategy.tiles.ffn_rows = 32;
  EXPECT_TRUE(without_effect(problem, strategy).empty());
  strategy.tiles.ffn_rows = 64;
  EXPECT_THAT(
      without_effect(problem, strategy),
      testing::ElementsAre("tiles.ffn_rows has no effect: a chunk has 64 rows on one rank"));
  strategy.tiles.ffn_rows = 0;
  strategy.tiles.loss_rows = 32;
  EXPECT_THAT(
      without_effect(problem, strategy),
      testing::ElementsAre("tiles.loss_rows has no effect: a chunk has 32 rows on one rank"));
}

// Only at stage 3 are there parameters that a node could have all of.
TEST(Unused, HybridBelowStage3IsHierarchical) {
  Problem problem = test::tiny_problem(test::tiny_llama(), 2, 60);
  problem.cluster.nodes = 2;
  Strategy strategy = canonical(problem, test::tiny_strategy(20));
  strategy.zero_groups = ZeroGroups::hybrid;
  strategy.zero = 3;
  EXPECT_TRUE(without_effect(problem, strategy).empty());
  strategy.zero = 2;
  EXPECT_THAT(without_effect(problem, strategy),
              testing::ElementsAre("zero_groups has no effect: each node has all parameters below "
                                   "ZeRO stage 3, as with hierarchical"));
  EXPECT_EQ(canonical(problem, strategy).zero_groups, ZeroGroups::hierarchical);
  problem.cluster.nodes = 1;
  EXPECT_EQ(canonical(problem, strategy).zero_groups, ZeroGroups::flat);
}

TEST(Unused, LeavesWhatHasAnEffect) {
  const Problem problem = test::tiny_problem(test::tiny_llama(), 4, 60);
  Strategy strategy = test::tiny_strategy(20);
  strategy.storage = Storage::bf16;
  strategy.zero = 1;
  strategy.mesh.ring = 2;
  strategy.keys = Keys::ring;
  strategy.layout = Layout::zigzag;
  strategy.key_gradients = Storage::bf16;
  strategy.tiles.ffn_rows = strategy.tiles.loss_rows = 2;
  strategy.tiles.loss_vocabulary = 7;
  strategy.offload_states(true);
  strategy.copies.optimizer_tile = 2048;
  EXPECT_TRUE(without_effect(problem, strategy).empty());
  EXPECT_EQ(canonical(problem, strategy), strategy);
}

// Each key once, each lever once, and each key that another choice sets names that.
TEST(Choices, NameEachOther) {
  std::set<std::string> keys, names;
  for (const Choice& choice : choices()) {
    EXPECT_TRUE(choice.key.empty() || keys.insert(choice.key).second) << choice.key;
    if (choice.turn > 0 || choice.has_rung()) {
      EXPECT_TRUE(names.insert(choice.name()).second) << choice.name();
    }
  }
  for (const Choice& choice : choices()) {
    EXPECT_TRUE(choice.set_by.empty() || names.contains(std::string(choice.set_by)));
  }
}

// In one of two strategies and models at least, since not all choices have an effect beside all
// others.
TEST(Choices, WithALeverHaveOtherValues) {
  Problem problem = test::tiny_problem(test::tiny_llama(), 4, 512);
  problem.cluster.nodes = problem.cluster.devices_per_node = 2;
  Strategy gathered = test::tiny_strategy(128);
  gathered.mesh.ring = 2;
  gathered.keys = Keys::gathered;
  gathered.micro_batches = 2;
  Strategy around = gathered;
  around.keys = Keys::ring;
  around.layer_classes.front().recompute = Recompute::keep_all;
  Problem of_experts = problem;
  of_experts.model.experts = of_experts.model.active_experts = 4;
  const auto fits = [](const Strategy&) { return true; };
  for (const Choice& choice : choices()) {
    if (choice.turn == 0) continue;
    bool others = false;
    for (const Problem* const one : {&problem, &of_experts}) {
      for (const Strategy& strategy : {gathered, around}) {
        for (const Strategy& value : other_values(*one, choice, strategy, fits)) {
          others = others || value != strategy;
        }
      }
    }
    EXPECT_TRUE(others) << choice.name();
  }
}

// A choice that is taken is the same in both, and nothing else changes.
TEST(Choices, AreTakenOneByOne) {
  const Problem problem = test::tiny_problem(test::tiny_llama(), 1, 2);
  const Strategy from = burdened();
  Strategy to = test::tiny_strategy(64);
  for (const Choice& choice : choices()) {
    if (choice.has_rung()) take(problem, choices(), choice, to, from);
  }
  EXPECT_EQ(to, from);
}

}  // namespace
}  // namespace fpdt
