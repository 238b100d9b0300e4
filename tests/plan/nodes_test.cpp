// Groups that know the node: schedules are safe, bytes and messages are those of the formulas.
#include <array>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/spec/edits.h"

#include "accounts.h"
#include "problems.h"

namespace fpdt {
namespace {

// Nodes of several ranks share in steps: in any grid, and where ranks that share products fill a
// node, cross its end, or have the same keys.
TEST(Nodes, AreSafeAndAddUp) {
  struct Grid {
    int nodes, devices, tensor = 1, ring = 1, replicas = 1;
  };
  constexpr std::array<Grid, 9> kGrids{{{2, 2},
                                        {3, 2, 1, 3},
                                        {2, 4, 2, 1, 2},
                                        {2, 4, 4, 1, 2},
                                        {4, 2, 4, 1, 2},
                                        {2, 3, 2, 1, 3},
                                        {2, 4, 1, 2, 2},
                                        {2, 6, 2, 3, 2},
                                        {2, 2, 4}}};
  int checked = 0;
  for (int corner = 0; corner < 216; ++corner) {
    const Grid& grid = kGrids[static_cast<std::size_t>(corner % 9)];
    ModelSpec model = corner / 9 % 2 == 0 ? test::tiny_llama() : test::tiny_gpt();
    model.kv_heads = std::array{4, 2, 1}[static_cast<std::size_t>(corner / 18 % 3)];
    Problem problem = test::tiny_problem(model, grid.nodes * grid.devices, 60);
    problem.cluster.nodes = grid.nodes;
    problem.cluster.devices_per_node = grid.devices;
    Strategy strategy = with_ring(test::tiny_strategy(24), grid.ring);
    strategy.mesh.tensor = grid.tensor;
    strategy.mesh.replicas = grid.replicas;
    strategy.zero = corner % 5 % 4;
    strategy.zero_groups = corner % 3 == 0 ? ZeroGroups::hierarchical : ZeroGroups::hybrid;
    strategy.micro_batches = 1 + corner % 2;
    if (corner % 7 == 0) strategy.keep = kStateHomes[corner % 2 == 0 ? 3 : 1];
    strategy.storage = corner % 5 < 2 ? Storage::f32 : Storage::bf16;
    strategy.layer_classes.front().recompute = static_cast<Recompute>(corner / 4 % 3);
    if (corner % 11 == 0) strategy.segments = {2};
    if (!check(problem, strategy).empty()) strategy.keep = kStateHomes.front();
    if (!check(problem, strategy).empty()) continue;
    ++checked;
    expect_accounts(problem, strategy, geometry(problem, strategy).chunks >= 3,
                    fmt::format("corner {}", corner));
  }
  EXPECT_GE(checked, 200);
}

}  // namespace
}  // namespace fpdt
