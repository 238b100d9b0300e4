// Pieces of ZeRO, the state table, and the ops that gather, reduce and update them.
#include "fpdt/plan/lowering/states.h"

#include <algorithm>
#include <array>
#include <map>

#include <gtest/gtest.h>

#include "problems.h"

namespace fpdt {
namespace {

TEST(States, CutEveryTensorIntoEqualPieces) {
  const Problem problem = test::tiny_problem(test::tiny_llama(), 4, 64);
  const Strategy strategy = test::tiny_strategy(16);
  Builder builder;
  States(builder, problem, strategy).add_table(builder);
  const Schedule& schedule = builder.finish();
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

// Stage 1 shards the states, 2 also gradients, 3 also parameters: bytes of a parameter on each of
// four ranks, in bf16. Below stage 2, whole gradients stand beside the pieces of their sum.
TEST(States, EachStageShardsMore) {
  struct Expected {
    Category category;
    std::array<double, 4> bytes;  // at stages 0 to 3
  };
  constexpr std::array<Expected, 3> kExpected{
      Expected{Category::weights, {2, 2, 2, 0.5}},
      Expected{Category::gradients, {4 + 1, 4 + 1, 1, 1}},
      Expected{Category::optimizer, {12, 3, 3, 3}},
  };
  const ModelSpec model = test::tiny_llama();
  const Problem problem = test::tiny_problem(model, 4, 64);
  for (std::int64_t stage = 0; stage <= 3; ++stage) {
    Strategy strategy = test::tiny_strategy(16);
    strategy.storage = Storage::bf16;
    strategy.zero = stage;
    Builder builder;
    const States states(builder, problem, strategy);
    std::map<Category, std::int64_t> held;  // bytes, without what slots are rounded up by
    for (const Buffer& buffer : builder.finish().buffers) {
      const bool collects = stage < 2 && buffer.name.starts_with("gradient_sum.");
      if (buffer.role == Role::state || collects) {
        held[buffer.category] += buffer.slots * buffer.rows() * dtype_bytes(buffer.dtype);
      }
    }
    for (const auto& [category, bytes] : kExpected) {
      EXPECT_DOUBLE_EQ(
          static_cast<double>(held[category]),
          bytes[static_cast<std::size_t>(stage)] * static_cast<double>(parameter_count(model)))
          << word(category) << " at stage " << stage;
    }
  }
}

TEST(States, OneRankGathersNothing) {
  const Problem problem = test::tiny_problem(test::tiny_llama(), 1, 64);
  const Strategy strategy = test::tiny_strategy(16);
  Builder builder;
  const States states(builder, problem, strategy);
  EXPECT_FALSE(states.gathers());
  const Operand weight = states.weight("up.weight", Version::at(7));
  EXPECT_EQ(builder.at(weight.buffer).name, "param.up.weight");
  EXPECT_EQ(weight.version, Version::at(0, 1));
  const Target gradient = states.gradient("up.weight", Version::at(7));
  EXPECT_EQ(builder.at(gradient.operand.buffer).name, "grad.up.weight");
  EXPECT_TRUE(gradient.accumulate);
}

// Layers have their parameters and gradients on the host, where embedding and head have none.
TEST(States, HomesOnTheHostPassThroughTheDevice) {
  const Problem problem = test::tiny_problem(test::tiny_llama(), 1, 64);
  Strategy strategy = test::tiny_strategy(16);
  strategy.keep = kStateHomes.back();
  Builder builder;
  const States states(builder, problem, strategy);
  EXPECT_TRUE(states.gathers_layers());
  EXPECT_FALSE(states.gathers());
  const auto name_of = [&](const Operand& one) { return builder.at(one.buffer).name; };
  const Version use = Version::at(7);
  EXPECT_EQ(name_of(states.weight("up.weight", use)), "fetched.up.weight");
  EXPECT_EQ(states.weight("up.weight", use).version, use);
  EXPECT_EQ(name_of(states.gradient("up.weight", use).operand), "gradient_sum.up.weight");
  EXPECT_EQ(name_of(states.weight("head.weight", use)), "param.head.weight");
  for (const Buffer& buffer : builder.declared()) {
    if (buffer.role != Role::state) continue;
    const bool of_end = buffer.name.ends_with("head.weight") ||
                        buffer.name.ends_with("embed.weight") ||
                        buffer.name.ends_with("final_norm.weight");
    const bool here =
        of_end && (buffer.name.starts_with("param") || buffer.name.starts_with("grad"));
    EXPECT_EQ(buffer.space == MemorySpace::device, here) << buffer.name;
  }
}

// Streamed states are consecutive tiles: every element is updated once, in place.
TEST(States, StreamInTiles) {
  const Problem problem = test::tiny_problem(test::tiny_llama(), 2, 64);
  Strategy strategy = test::tiny_strategy(16);
  strategy.offload_states(true);
  Builder builder;
  States states(builder, problem, strategy);
  states.emit_blocks(builder);
  const Schedule& schedule = builder.finish();
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
