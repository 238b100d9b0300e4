// Whole tensors through shards, slots and types.
#include "fpdt/train/states.h"

#include <cmath>

#include <gtest/gtest.h>

#include "fpdt/base/error.h"
#include "fpdt/io/hf_weights.h"

#include "cases.h"

namespace fpdt {
namespace {

std::vector<float> counting(std::int64_t elements) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < elements; ++i) values.push_back(1.0F + static_cast<float>(i) / 1024);
  return values;
}

// What is written is read back, every kind, on one rank and on four with pieces that need padding.
TEST(States, ComeBackAsTheyWereSet) {
  for (const std::int64_t ranks : {1, 4}) {
    Rig rig(make_case(tiny_llama(), ranks, 16, 8));
    for (const State& state : rig.trainer.schedule().states) {
      std::int64_t elements = 1;
      for (const std::int64_t extent : state.shape) elements *= extent;
      write_state(rig.trainer.ranks(), state, counting(elements));
      EXPECT_EQ(read_state(rig.trainer.ranks(), state), counting(elements)) << state.tensor;
    }
  }
}

// Tiles of 1024 elements: an embedding of 70 * 16 words on one rank needs two slots.
TEST(States, RunThroughFollowingSlots) {
  Case one = make_case(tiny_llama(), 1, 16, 8);
  one.problem.model.vocabulary = 70;
  one.strategy.optimizer_offload = true;
  one.strategy.optimizer_tile = 1024;
  Rig rig(one);
  const State* const state = find_state(rig.trainer.schedule(), "embed.weight", "moment1");
  ASSERT_NE(state, nullptr);
  ASSERT_EQ(rig.trainer.schedule().buffers[static_cast<std::size_t>(state->buffer)].slots, 2);
  write_state(rig.trainer.ranks(), *state, counting(70 * 16));
  EXPECT_EQ(read_state(rig.trainer.ranks(), *state), counting(70 * 16));
}

TEST(States, StorageInBf16RoundsAndKeepsAnExactMaster) {
  Case one = make_case(tiny_llama(), 2, 16, 8);
  one.strategy.storage = Storage::bf16;
  Rig rig(one);
  const std::vector<float> values = counting(16);
  rig.trainer.set_tensor("final_norm.weight", "weight", values);
  EXPECT_EQ(rig.trainer.tensor("final_norm.weight", "weight"), values);
  const std::vector<float> stored = rig.trainer.tensor("final_norm.weight", "parameter");
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_LE(std::abs(stored[i] - values[i]), 0x1p-8F * values[i]);
  }
  EXPECT_NE(stored, values);
}

TEST(States, AnotherModelIsRefused) {
  const Case one = make_case(tiny_llama(), 1, 16, 8);
  const Lowered lowered = lower(one.problem, one.strategy);
  EXPECT_NO_THROW(require_states(lowered.schedule.schedule(), one.problem.model));
  ModelSpec other = one.problem.model;
  other.hidden = 32;
  EXPECT_THROW(require_states(lowered.schedule.schedule(), other), InputError);
  other = one.problem.model;
  other.layers = 3;
  EXPECT_THROW(require_states(lowered.schedule.schedule(), other), InputError);
  Problem problem = one.problem;
  problem.model.vocabulary = 20;
  EXPECT_THROW(Trainer(lowered.schedule, problem, one.strategy, {}), InputError);
}

}  // namespace
}  // namespace fpdt
