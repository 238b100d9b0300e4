// Ranks that share products: schedules are safe, bytes and messages are those of the formulas.
#include <array>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/spec/edits.h"

#include "accounts.h"
#include "problems.h"

namespace fpdt {
namespace {

// Ranks share products, beside all-to-alls, rings and replicas; or they are more than KV heads.
TEST(SharedProducts, AreSafeAndAddUp) {
  struct Grid {
    int ranks, tensor, ring = 1, replicas = 1;
  };
  constexpr std::array<Grid, 7> kGrids{
      {{2, 2}, {4, 2}, {4, 4}, {4, 2, 2}, {4, 2, 1, 2}, {6, 2, 3}, {8, 4, 1, 2}}};
  for (int corner = 0; corner < 252; ++corner) {
    const Grid& grid = kGrids[static_cast<std::size_t>(corner % 7)];
    ModelSpec model = corner / 7 % 2 == 0 ? test::tiny_llama() : test::tiny_gpt();
    model.kv_heads = std::array{4, 2, 1}[static_cast<std::size_t>(corner / 14 % 3)];
    Strategy strategy = test::tiny_strategy(corner % 5 == 0 ? 72 : 24);
    strategy = with_ring(strategy, grid.ring);
    if (grid.ring > 1 && corner % 3 == 0) strategy.keys = Keys::ring;
    strategy.mesh.tensor = grid.tensor;
    strategy.mesh.replicas = grid.replicas;
    strategy.zero = corner % 4;
    strategy.micro_batches = 1 + corner % 2;
    strategy.offload_states(corner % 9 == 0);
    strategy.tiles.backward_order = static_cast<BackwardOrder>(corner / 3 % 2);
    strategy.copies.overlap_all_to_all = corner % 8 < 5;
    strategy.storage = corner % 5 < 2 ? Storage::f32 : Storage::bf16;
    LayerClass& layers = strategy.layer_classes.front();
    layers.recompute = static_cast<Recompute>(corner / 4 % 3);
    layers.keep.fill(0.5 * (corner / 5 % 3));
    const Problem problem = test::tiny_problem(model, grid.ranks, 60);
    ASSERT_EQ(format_diagnostics(check(problem, strategy)), "") << corner;
    const Geometry shape = geometry(problem, strategy);
    const bool turn = all_rings_turn(shape, layers.keep.front());
    expect_accounts(problem, strategy, shape.chunks >= 3 && turn, fmt::format("corner {}", corner));
  }
}

}  // namespace
}  // namespace fpdt
