// Attention outputs that are stored from a chunk on, in bytes.
#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/spec/strategy.h"

#include "accounts.h"
#include "problems.h"

namespace fpdt {
namespace {

// Fewer, as many and more repeated and stored chunks than a thumbnail has.
TEST(StoredChunks, AddUp) {
  for (int corner = 0; corner < 160; ++corner) {
    const std::int64_t chunks = std::array{4, 6, 7, 9, 12}[static_cast<std::size_t>(corner % 5)];
    const std::int64_t first = std::array{1, 2, 3, 5}[static_cast<std::size_t>(corner / 5 % 4)];
    if (first >= chunks) continue;
    Strategy strategy = test::tiny_strategy(8);
    strategy.tiles.backward_order = static_cast<BackwardOrder>(corner / 20 % 2);
    strategy.tiles.serpentine = corner % 7 < 3;
    strategy.copies.overlap_all_to_all = corner % 3 > 0;
    strategy.copies.prefetch_depth = corner % 4;
    if (corner % 9 < 4) strategy.queries = Queries::again;
    if (corner % 11 < 4) strategy.layer_gradients = LayerGradients::in_inputs;
    LayerClass& layers = strategy.layer_classes.front();
    layers.recompute = corner / 40 % 2 == 0 ? Recompute::keep_attention : Recompute::keep_all;
    layers.first_stored_chunk = first;
    const double keep = corner % 3 == 0 ? 0.3 : corner % 3 - 1;
    layers.keep.fill(keep);
    ModelSpec model = test::tiny_llama();
    model.layers = 4;
    if (corner / 80 == 1) {
      strategy.layer_classes.push_back(layers);
      strategy.layer_classes.front().layers = 1;
      strategy.layer_classes.back().first_stored_chunk = chunks - 1 - first;
    }
    const Problem problem = test::tiny_problem(model, 2, 8 * chunks);
    const Geometry shape = geometry(problem, strategy);
    bool exact = corner / 80 == 0 && first >= 3;
    for (std::size_t k = 0; k < kTensorClasses; ++k) {
      const Geometry::Parts parts =
          shape.parts(strategy.layer_classes.front(), static_cast<TensorClass>(k));
      exact = exact && (parts.all == parts.kept || parts.all - parts.kept >= 3);
    }
    expect_accounts(problem, strategy, exact, fmt::format("corner {}", corner));
  }
}

}  // namespace
}  // namespace fpdt
