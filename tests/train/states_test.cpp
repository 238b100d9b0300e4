// Whole tensors are read and written across shards, slots and types.
#include "fpdt/train/states.h"

#include <cmath>

#include <gtest/gtest.h>

#include "fpdt/base/error.h"
#include "fpdt/io/hf_weights.h"
#include "fpdt/schedule/lasting.h"

#include "cases.h"
#include "far_backend.h"
#include "process_worlds.h"

namespace fpdt {
namespace {

std::vector<float> counting(std::int64_t elements) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < elements; ++i) values.push_back(1.0F + static_cast<float>(i) / 1024);
  return values;
}

std::int64_t elements_of(const State& state) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : state.shape) elements *= extent;
  return elements;
}

// All bytes that a rank holds of a state.
std::vector<std::vector<std::byte>> slots_of(const Ranks& ranks, std::int64_t rank,
                                             const State& state) {
  const Buffer& buffer = ranks.schedule().buffers[static_cast<std::size_t>(state.buffer)];
  std::vector<std::vector<std::byte>> slots;
  for (std::int64_t slot = 0; slot < buffer.slots; ++slot) {
    slots.emplace_back(static_cast<std::size_t>(buffer.slot_bytes().value));
    ranks.executor(rank).read(state.buffer, slot, slots.back());
  }
  return slots;
}

// Every kind reads back as it was written, on one rank and on four, with pieces that need padding.
TEST(States, ComeBackAsTheyWereSet) {
  for (const std::int64_t ranks : {1, 4}) {
    Rig rig(make_case(tiny_llama(), ranks, 16, 8));
    for (const State& state : rig.trainer.schedule().states) {
      const std::vector<float> values = counting(elements_of(state));
      write_range(rig.trainer.ranks(), {&state}, 0, values);
      EXPECT_EQ(read_state(rig.trainer.ranks(), {&state}), values) << state.tensor;
    }
  }
}

// Any cut into ranges gives the bytes of the whole, with zeros after them, wherever ranges end.
TEST(States, AreSetRangeByRange) {
  for (const bool far : {false, true}) {
    Case one = make_case(tiny_llama(), 4, 16, 8);
    one.strategy.storage = Storage::bf16;
    one.problem.model.vocabulary = 70;
    one.strategy.keep = kStateHomes.back();
    one.strategy.copies.optimizer_tile = 1024;
    RankOptions options = Rig::one_thread();
    if (far) options.make_backend = make_far_backend;
    Rig whole(one);
    Rig parts(one, options);
    for (const State& state : whole.trainer.schedule().states) {
      if (state.kind == "gradient") continue;  // gradients of tensors take turns in their slots
      const std::vector<float> values = counting(elements_of(state));
      write_range(whole.trainer.ranks(), {&state}, 0, values);
      const Bytes slot = whole.trainer.schedule().buffers[index(state.buffer)].slot_bytes();
      const std::vector<std::byte> junk(index(slot.value), std::byte{7});
      for (std::int64_t rank = 0; rank < 4; ++rank) {
        const StateSlots held = slots_of(whole.trainer.schedule(), state);
        for (std::int64_t i = 0; i < held.count; ++i) {
          parts.trainer.ranks().executor(rank).write(state.buffer, held.first + i, junk);
        }
      }
      const std::int64_t elements = elements_of(state);
      for (std::int64_t first = 0, length = 1; first < elements; first += length, length += 37) {
        const auto part =
            std::span(values).subspan(index(first), index(std::min(length, elements - first)));
        write_range(parts.trainer.ranks(), {&state}, first, part);
      }
      for (std::int64_t rank = 0; rank < 4; ++rank) {
        EXPECT_TRUE(slots_of(whole.trainer.ranks(), rank, state) ==
                    slots_of(parts.trainer.ranks(), rank, state))
            << state.kind << " of " << state.tensor << ", rank " << rank;
      }
    }
  }
}

TEST(States, SayWhatIsHeldHere) {
  const Case one = make_case(tiny_llama(), 4, 16, 8);
  const auto of_embedding = [](const Ranks& ranks) {
    return held_ranges(ranks, {states_of(ranks.schedule(), "embed.weight", "moment1").front(),
                               states_of(ranks.schedule(), "embed.weight", "parameter").front()});
  };
  Rig all(one);
  EXPECT_EQ(of_embedding(all.trainer.ranks()), (std::vector<ElementRange>{{0, 19 * 16}}));
  const auto errors = run_processes(4, [&](World& world, const Connect& connect) {
    Rig rig(one, in_process(world, connect));
    const std::int64_t first = 19 * 4 * world.place().process;
    EXPECT_EQ(of_embedding(rig.trainer.ranks()),
              (std::vector<ElementRange>{{first, first + 19 * 4}}));
  });
  for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
}

// Pieces arrive on one process, in order, from whoever holds them.
TEST(States, StreamToOneProcess) {
  for (const std::int64_t replicas : {1, 2}) {
    Case one = make_case(tiny_llama(), 4, 16, 8);
    one.strategy.storage = Storage::bf16;
    one.strategy.mesh.replicas = replicas;
    const auto errors = run_processes(4, [&](World& world, const Connect& connect) {
      Rig rig(one, in_process(world, connect));
      const Ranks& ranks = rig.trainer.ranks();
      for (const State& state : ranks.schedule().states) {
        std::vector<float> values = counting(elements_of(state));
        if (state.kind == "parameter") values.assign(values.size(), 1.5F);  // exact in bf16
        write_range(ranks, {&state}, 0, values);
        for (std::int64_t to = 0; to < 4; ++to) {
          std::vector<float> found;
          stream_state(ranks, {&state}, to, [&](std::int64_t first, std::span<const float> piece) {
            EXPECT_EQ(first, std::ssize(found));
            found.insert(found.end(), piece.begin(), piece.end());
          });
          EXPECT_EQ(found, world.place().process == to ? values : std::vector<float>());
        }
        EXPECT_EQ(read_state(ranks, {&state}), values);
      }
    });
    for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
  }
}

TEST(States, StreamInPiecesOfBoundedSize) {
  Case one = make_case(tiny_llama(), 2, 16, 8);
  one.problem.model.vocabulary = 600'000;  // 4,800,000 elements a rank
  Rig rig(one);
  rig.trainer.set_parameters(initial_parameters(3));
  const Ranks& ranks = rig.trainer.ranks();
  std::vector<std::int64_t> pieces;
  stream_state(
      ranks, states_of(ranks.schedule(), "embed.weight", "parameter"), 0,
      [&](std::int64_t, std::span<const float> piece) { pieces.push_back(std::ssize(piece)); });
  EXPECT_EQ(pieces, (std::vector<std::int64_t>{kStreamElements, kStreamElements,
                                               9'600'000 - 2 * kStreamElements}));
}

// The others do not wait for a process that cannot take what they send.
TEST(States, StreamPastAnErrorOfTheReceiver) {
  const Case one = make_case(tiny_llama(), 4, 16, 8);
  const auto errors = run_processes(4, [&](World& world, const Connect& connect) {
    Rig rig(one, in_process(world, connect));
    const State& state = rig.trainer.schedule().states.front();
    int calls = 0;
    const auto full = [&](std::int64_t, std::span<const float>) {
      ++calls;
      throw IoError("no space left");
    };
    agree(world, [&] {
      if (world.speaks()) {
        EXPECT_THROW(stream_state(rig.trainer.ranks(), {&state}, 0, full), IoError);
        EXPECT_EQ(calls, 1);
        throw IoError("no space left");
      }
      stream_state(rig.trainer.ranks(), {&state}, 0, full);
      EXPECT_EQ(calls, 0);
    });
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_STREQ(error->what(), "rank 0: no space left");
  }
}

// Tiles of 1024 elements: an embedding of 70 * 16 words on one rank needs two slots.
TEST(States, RunThroughFollowingSlots) {
  Case one = make_case(tiny_llama(), 1, 16, 8);
  one.problem.model.vocabulary = 70;
  one.strategy.keep = kStateHomes.back();
  one.strategy.copies.optimizer_tile = 1024;
  Rig rig(one);
  const StateEntries moment = states_of(rig.trainer.schedule(), "embed.weight", "moment1");
  ASSERT_EQ(moment.size(), 1U);
  ASSERT_EQ(rig.trainer.schedule().buffers[index(moment.front()->buffer)].slots, 2);
  write_range(rig.trainer.ranks(), moment, 0, counting(70 * 16));
  EXPECT_EQ(read_state(rig.trainer.ranks(), moment), counting(70 * 16));
}

// Filling by elements, on any number of ranks and threads, in place or not, gives the bytes of
// filling by whole tensors. Includes pieces that need padding, and every byte of every slot.
TEST(States, AreFilledWithTheSameBits) {
  for (const std::int64_t ranks : {1, 2, 4}) {
    Case one = make_case(tiny_llama(), ranks, 16, 8);
    one.strategy.storage = Storage::bf16;
    one.problem.model.vocabulary = 8191;  // 131,056 elements: more than one task, no whole blocks
    Rig whole(one);
    std::vector<State> states = whole.trainer.schedule().states;
    // Gradients of tensors take turns in their slots.
    std::erase_if(states, [](const State& state) { return state.kind == "gradient"; });
    for (const State& state : states) {
      write_range(whole.trainer.ranks(), {&state}, 0, counting(elements_of(state)));
    }
    const auto source = [](std::int64_t first, std::span<float> values) {
      for (float& value : values) value = 1.0F + static_cast<float>(first++) / 1024;
    };
    for (const std::int32_t threads : {1, 2, 7}) {
      RankOptions options = Rig::one_thread();
      if (threads == 2) options.make_backend = make_far_backend;
      Rig filled(one, options);
      Pool pool(threads);
      for (const State& state : states) fill_state(filled.trainer.ranks(), {&state}, pool, source);
      for (const State& state : states) {
        for (std::int64_t rank = 0; rank < ranks; ++rank) {
          EXPECT_TRUE(slots_of(whole.trainer.ranks(), rank, state) ==
                      slots_of(filled.trainer.ranks(), rank, state))
              << state.kind << " of " << state.tensor << ", rank " << rank;
        }
      }
    }
  }
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
  EXPECT_THROW(Trainer(lowered.schedule, problem, {}), InputError);
}

TEST(States, PartsOfATensorAreNotAnotherModel) {
  const Case one = make_case(tiny_llama(), 2, 16, 8);
  Schedule schedule = lower(one.problem, one.strategy).schedule.schedule();
  State& state = schedule.states[0];
  state.cut = {0, 0, {state.shape[0]}, 2, RankExpression{0, {1, 0, 1, 2}}};
  EXPECT_NO_THROW(require_states(schedule, one.problem.model));
  std::erase_if(schedule.states, [](const State& other) { return other.kind == "moment2"; });
  EXPECT_THROW(require_states(schedule, one.problem.model), InputError);
}

}  // namespace
}  // namespace fpdt
