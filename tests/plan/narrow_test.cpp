// Strategies on a problem that the reference can compute.
#include "fpdt/plan/narrow.h"

#include <gtest/gtest.h>

#include "fpdt/plan/lower.h"
#include "fpdt/plan/methods/method.h"

#include "problems.h"

namespace fpdt {
namespace {

void expect_same_shape(const Problem& problem, const Strategy& strategy) {
  const auto [small, same] = narrowed(problem, strategy);
  const Geometry before = geometry(problem, strategy), after = geometry(small, same);
  EXPECT_EQ(same.mesh, strategy.mesh);
  EXPECT_EQ(after.chunks, before.chunks);
  EXPECT_EQ(after.hops, before.hops);
  EXPECT_EQ(after.last_chunk_rows < after.chunk_rows, before.last_chunk_rows < before.chunk_rows);
  ASSERT_EQ(same.layer_classes.size(), strategy.layer_classes.size());
  for (std::size_t i = 0; i < same.layer_classes.size(); ++i) {
    EXPECT_EQ(same.layer_classes[i].recompute, strategy.layer_classes[i].recompute);
    for (std::size_t k = 0; k < kTensorClasses; ++k) {
      const auto tensor = static_cast<TensorClass>(k);
      EXPECT_EQ(after.parts(same.layer_classes[i], tensor).kept,
                before.parts(strategy.layer_classes[i], tensor).kept);
    }
  }
  EXPECT_LE(small.seq_len, 4096);
  lower(small, same);
}

TEST(Narrowed, KeepsTheShapeOfEveryMethod) {
  const Problem problem = test::llama3_8b(1 << 20);
  for (const Method* const method : methods()) {
    SCOPED_TRACE(method->name);
    expect_same_shape(problem, method->published(problem, 1));
  }
}

// A narrow sequence has at most the original positions, and narrow heads have fewer pairs.
TEST(Narrowed, KeepsWhichFactorsPairsHaveAndWhetherAWindowHidesKeys) {
  Problem problem = test::llama3_8b(1 << 20);
  LayerKind& kind = problem.model.kinds.front();
  kind.rotary.factor = 1;
  kind.rotary.scaling = RotaryScaling::longrope;
  kind.rotary.short_factors.assign(64, 2.0);
  kind.rotary.long_factors.assign(64, 3.0);
  const Strategy strategy = default_strategy(problem);
  const auto narrow = [&] { return narrowed(problem, strategy).first; };
  const auto factors = [](const Problem& small) {
    return small.model.kinds.front().rotary.pair_factors(small.seq_len);
  };
  kind.window = 1 << 20;
  EXPECT_EQ(factors(narrow()), std::vector<double>(4, 3.0));
  EXPECT_EQ(narrow().model.kinds.front().window, 0);
  kind.window = 1 << 19;
  EXPECT_GT(narrow().model.kinds.front().window_in(narrow().seq_len), 0);
  kind.rotary.original_positions = 1 << 20;
  EXPECT_EQ(factors(narrow()), std::vector<double>(4, 2.0));
  expect_same_shape(problem, strategy);
}

TEST(Narrowed, KeepsClassesSegmentsAndRaggedChunks) {
  const Problem problem = test::llama3_8b((1 << 20) - 1000);
  Strategy strategy = default_strategy(problem);
  LayerClass stored;
  stored.layers = 17;
  stored.recompute = Recompute::keep_attention;
  stored.keep.fill(0.3);
  strategy.layer_classes.front().keep = stored.keep;
  strategy.layer_classes.insert(strategy.layer_classes.begin(), stored);
  strategy.tiles.ffn_rows = 4096;
  expect_same_shape(problem, strategy);
  EXPECT_EQ(narrowed(problem, strategy).first.model.layers, 6);

  Strategy segments = default_strategy(problem);
  segments.segments = {4};
  expect_same_shape(problem, segments);
}

}  // namespace
}  // namespace fpdt
