// Every edge that `depend` gives a lowered schedule is needed: without it the verifier finds a
// race.
#include <gtest/gtest.h>

#include "fpdt/cost/machine.h"
#include "fpdt/plan/lower.h"
#include "fpdt/sim/simulate.h"

#include "problems.h"

namespace fpdt {
namespace {

struct Corner {
  const char* name;
  std::int64_t ranks = 2;
  BackwardOrder order = BackwardOrder::kv_outer;
  Recompute recompute = Recompute::from_input;
  double keep = 0;
  bool offload = false;
  Keys keys = Keys::resident;  // otherwise of all ranks, in a zigzag
  std::int64_t first_stored = 0;
  std::int64_t tensor = 1;
  std::int64_t kv_heads = 2;
};

class Edges : public testing::TestWithParam<Corner> {};

TEST_P(Edges, AreAllNeeded) {
  const Corner& choice = GetParam();
  Strategy strategy = test::tiny_strategy(16);
  strategy.micro_batches = choice.offload ? 1 : 2;
  if (choice.offload) strategy.keep = kStateHomes.back();
  strategy.tiles.backward_order = choice.order;
  strategy.keys = choice.keys;
  if (choice.keys != Keys::resident) strategy.mesh.ring = choice.ranks;
  strategy.mesh.tensor = choice.tensor;
  strategy.layout = Layout::zigzag;
  strategy.layer_classes.front().recompute = choice.recompute;
  strategy.layer_classes.front().keep.fill(choice.keep);
  strategy.layer_classes.front().first_stored_chunk = choice.first_stored;
  ModelSpec model = test::tiny_llama();
  model.layers = 3;
  model.kv_heads = choice.kv_heads;
  const Lowered lowered = lower(test::tiny_problem(model, choice.ranks, 60), strategy);
  Schedule schedule = lowered.schedule.schedule();
  // Only versions matter here; placement would share bytes according to the edges.
  for (Buffer& buffer : schedule.buffers) buffer.offset = kUnplaced;
  ASSERT_TRUE(verify(schedule).empty());
  std::size_t edges = 0;
  for (Block& block : schedule.blocks) {
    for (Op& op : block.ops) {
      const std::vector<After> all = op.after;
      for (std::size_t i = 0; i < all.size(); ++i, ++edges) {
        op.after = all;
        op.after.erase(op.after.begin() + static_cast<std::ptrdiff_t>(i));
        EXPECT_FALSE(verify(schedule).empty()) << block.name << "." << op.name << " edge " << i;
      }
      op.after = all;
    }
  }
  EXPECT_GT(edges, 50U);
}

INSTANTIATE_TEST_SUITE_P(
    Strategies, Edges,
    testing::Values(
        Corner{.name = "spilled"}, Corner{.name = "one_rank", .ranks = 1},
        Corner{.name = "q_outer", .order = BackwardOrder::q_outer, .keep = 0.5},
        Corner{.name = "kept", .ranks = 4, .recompute = Recompute::keep_all, .keep = 1},
        Corner{.name = "attention", .recompute = Recompute::keep_attention},
        Corner{.name = "attention_of_two_chunks",
               .recompute = Recompute::keep_attention,
               .keep = 0.5,
               .first_stored = 2},
        Corner{.name = "offloaded", .ranks = 4, .offload = true},
        Corner{.name = "tensor", .tensor = 2},
        Corner{.name = "tensor_and_heads",
               .ranks = 4,
               .order = BackwardOrder::q_outer,
               .recompute = Recompute::keep_attention,
               .tensor = 2},
        Corner{.name = "tensor_and_one_kv_head", .ranks = 4, .tensor = 2, .kv_heads = 1},
        Corner{.name = "gathered_keys", .keys = Keys::gathered},
        Corner{.name = "ring", .ranks = 4, .keep = 0.5, .keys = Keys::ring},
        Corner{.name = "ring_q_outer", .order = BackwardOrder::q_outer, .keys = Keys::ring}),
    [](const auto& one) { return std::string(one.param.name); });

// A lane that carries both directions fetches for the next tile while this one runs.
TEST(OneLane, CopiesBesideTiles) {
  for (const BackwardOrder order : {BackwardOrder::kv_outer, BackwardOrder::q_outer}) {
    Problem problem = test::timed_problem(test::tiny_llama(), 2, 2048);
    problem.cluster.row_multiple = 1;  // 32 chunks
    problem.cluster.rates.h2d = problem.cluster.rates.d2h = {8e8, 8e8, 8e8};
    Strategy strategy = test::tiny_strategy(64);
    strategy.tiles.backward_order = order;
    strategy.copies.duplex = false;
    const Lowered lowered = lower(problem, strategy);
    const Schedule& schedule = lowered.schedule.schedule();
    const Simulation step =
        simulate(schedule, schedule.train, Machine(problem.cluster, RateEnd::typical));
    const std::int64_t compute = step.busy[static_cast<std::size_t>(LaneKind::compute)];
    const std::int64_t copies = step.busy[static_cast<std::size_t>(LaneKind::h2d)];
    EXPECT_LT(copies, compute);
    EXPECT_LT(step.nanoseconds - compute, copies / 2) << word(order);
  }
}

}  // namespace
}  // namespace fpdt
