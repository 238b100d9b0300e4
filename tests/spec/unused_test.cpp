// What is said to have no effect is what is taken away.
#include "fpdt/spec/unused.h"

#include <algorithm>

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
  return strategy;
}

TEST(Unused, NamesWhatItTakesAway) {
  const Problem problem = test::tiny_problem(test::tiny_llama(), 1, 2);
  const Strategy without = without_unused(problem, burdened());
  EXPECT_EQ(without_effect(problem, burdened()).size(), 10U);
  EXPECT_TRUE(without_effect(problem, without).empty());
  Strategy plain = test::tiny_strategy(64);
  plain.storage = Storage::f32;
  plain.zero = Strategy{}.zero;
  plain.tiles.ffn_rows = plain.tiles.loss_rows = plain.tiles.loss_vocabulary = 0;
  plain.copies.optimizer_tile = Copies{}.optimizer_tile;
  EXPECT_EQ(without, plain);
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
  EXPECT_EQ(without_unused(problem, strategy), strategy);
}

}  // namespace
}  // namespace fpdt
