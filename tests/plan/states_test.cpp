// ZeRO-3 pieces, the state table, and the ops that gather, reduce and update them.
#include "fpdt/plan/lowering/states.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "problems.h"

namespace fpdt {
namespace {

TEST(States, CutEveryTensorIntoEqualPieces) {
  const Problem problem = test::tiny_problem(test::tiny_llama(), 4, 64);
  const Strategy strategy = test::tiny_strategy(16);
  Builder builder;
  const Rings rings(problem, strategy);
  const States states(builder, rings, problem, strategy);
  const Schedule& schedule = builder.schedule;
  // Six tensors of two layers and three global ones; f32: parameter, moments and gradient of each.
  EXPECT_EQ(schedule.states.size(), (6U * 2 + 3) * 4);
  for (const State& state : schedule.states) {
    std::int64_t elements = 1;
    for (const std::int64_t size : state.shape) elements *= size;
    const Buffer& buffer = schedule.buffers[static_cast<std::size_t>(state.buffer)];
    EXPECT_EQ(buffer.rows(), div_ceil(elements, 4)) << state.tensor;
    EXPECT_EQ(state.shards, 4);
    EXPECT_EQ(state.shard.at(3), 3);
  }
}

TEST(States, OneRankGathersNothing) {
  const Problem problem = test::tiny_problem(test::tiny_llama(), 1, 64);
  const Strategy strategy = test::tiny_strategy(16);
  Builder builder;
  const Rings rings(problem, strategy);
  const States states(builder, rings, problem, strategy);
  EXPECT_FALSE(states.sharded());
  const Operand weight = states.weight("up.weight", Version::at(7));
  EXPECT_EQ(builder.at(weight.buffer).name, "param.up.weight");
  EXPECT_EQ(weight.version, Version::at(0, 1));
  const Target gradient = states.gradient("up.weight", Version::at(7));
  EXPECT_EQ(builder.at(gradient.operand.buffer).name, "grad.up.weight");
  EXPECT_TRUE(gradient.accumulate);
}

// Streamed states are consecutive tiles: every element is updated once, in place.
TEST(States, StreamInTiles) {
  const Problem problem = test::tiny_problem(test::tiny_llama(), 2, 64);
  Strategy strategy = test::tiny_strategy(16);
  strategy.offload_states(true);
  Builder builder;
  const Rings rings(problem, strategy);
  const States states(builder, rings, problem, strategy);
  states.emit_blocks(builder);
  const Schedule& schedule = builder.schedule;
  const auto block = std::find_if(schedule.blocks.begin(), schedule.blocks.end(),
                                  [](const Block& one) { return one.name == "optimizer_layer"; });
  ASSERT_NE(block, schedule.blocks.end());
  std::int64_t updated = 0;
  for (const Op& op : block->ops) {
    const auto* update = std::get_if<AdamW>(&op.body);
    if (update == nullptr) continue;
    EXPECT_EQ(update->master.buffer, update->master_out.operand.buffer);
    EXPECT_LE(update->grad.rows, 1024);
    updated += update->grad.rows;
  }
  std::int64_t pieces = 0;
  for (const TensorSpec& tensor : layer_tensors(problem.model)) {
    pieces += div_ceil(tensor.elements(), 2);
  }
  EXPECT_EQ(updated, pieces);
}

}  // namespace
}  // namespace fpdt
