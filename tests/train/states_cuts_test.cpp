// Tensors that are cut between ranks are read and written whole, and held in parts.
#include <cstring>
#include <gmock/gmock.h>
#include <set>

#include <gtest/gtest.h>

#include "fpdt/base/math.h"
#include "fpdt/cpu/backend.h"
#include "fpdt/train/states.h"

#include "cut_states.h"
#include "far_backend.h"
#include "process_worlds.h"

namespace fpdt {
namespace {

RankOptions near_or_far(bool far) {
  RankOptions options;
  options.threads = 1;
  if (far) options.make_backend = make_far_backend;
  return options;
}

// The ranks of a table, and the entries of a tensor at a time.
struct CutRig {
  explicit CutRig(Schedule table, const RankOptions& options = near_or_far(false))
      : schedule(verified(std::move(table))), ranks(schedule, options) {}

  template <class Check>
  void each(const Check& check) const {
    std::set<std::pair<std::string, std::string>> seen;
    for (const State& state : ranks.schedule().states) {
      if (!seen.emplace(state.tensor, state.kind).second) continue;
      SCOPED_TRACE(state.kind + " of " + state.tensor);
      check(states_of(ranks.schedule(), state.tensor, state.kind));
    }
  }
  [[nodiscard]] std::vector<std::byte> bytes(const State& state, std::int64_t rank) const {
    const Buffer& buffer = ranks.schedule().buffers[index(state.buffer)];
    const std::int64_t slot_bytes = buffer.slot_bytes().value;
    std::vector<std::byte> all(index(buffer.slots * slot_bytes));
    for (std::int64_t slot = 0; slot < buffer.slots; ++slot) {
      ranks.executor(rank).read(
          state.buffer, slot, std::span(all).subspan(index(slot * slot_bytes), index(slot_bytes)));
    }
    return all;
  }
  void expect_held(const StateEntries& entries) const {
    for (const State* const state : entries) {
      for (const std::int64_t rank : ranks.present()) {
        EXPECT_EQ(bytes(*state, rank), held_bytes(ranks.schedule(), *state, rank))
            << "from " << state->cut.first << ", rank " << rank;
      }
    }
  }
  void spoil() const {
    for (const std::int64_t rank : ranks.present()) {
      ranks.executor(rank).fill(MemorySpace::device, std::byte{7});
    }
  }

  VerifiedSchedule schedule;
  Ranks ranks;
};

// Wherever the ranges end that are written.
TEST(StatesCuts, RanksHoldTheirParts) {
  for (const bool far : {false, true}) {
    const CutRig rig(table_of_cuts(), near_or_far(far));
    for (const std::int64_t step : {1, 3, 37, 1 << 20}) {
      rig.spoil();
      rig.each([&](const StateEntries& entries) {
        const std::vector<float> values = values_of(tensor_elements(*entries.front()));
        for (std::int64_t first = 0; first < std::ssize(values); first += step) {
          const std::int64_t count = std::min(step, std::ssize(values) - first);
          write_range(rig.ranks, entries, first,
                      std::span(values).subspan(index(first), index(count)));
        }
        rig.expect_held(entries);
        EXPECT_EQ(read_state(rig.ranks, entries), values);
      });
    }
  }
}

TEST(StatesCuts, AreFilledInPlaceAndFromAfar) {
  for (const bool far : {false, true}) {
    const CutRig rig(table_of_cuts(), near_or_far(far));
    rig.spoil();
    Pool pool(2);
    rig.each([&](const StateEntries& entries) {
      fill_state(rig.ranks, entries, pool, [](std::int64_t first, std::span<float> values) {
        for (float& value : values) value = value_of(first++);
      });
      rig.expect_held(entries);
    });
  }
}

// What is asked for, sent and received is what each process holds.
TEST(StatesCuts, PassBetweenProcesses) {
  const auto errors = run_processes(6, [&](World& world, const Connect& connect) {
    const CutRig rig(table_of_cuts(), in_process(world, connect));
    rig.spoil();
    Pool pool(1);
    rig.each([&](const StateEntries& entries) {
      std::set<std::int64_t> asked, held;
      fill_state(rig.ranks, entries, pool, [&](std::int64_t first, std::span<float> values) {
        for (float& value : values) {
          asked.insert(first);
          value = value_of(first++);
        }
      });
      rig.expect_held(entries);
      for (const State* const state : entries) {
        const auto elements = held_elements(*state, world.place().process);
        held.insert(elements.begin(), elements.end());
      }
      EXPECT_EQ(asked, held);
      const std::vector<float> values = values_of(tensor_elements(*entries.front()));
      for (const std::int64_t to : {0, 4}) {
        std::vector<float> found;
        stream_state(rig.ranks, entries, to, [&](std::int64_t first, std::span<const float> part) {
          EXPECT_EQ(first, std::ssize(found));
          found.insert(found.end(), part.begin(), part.end());
        });
        EXPECT_EQ(found, world.place().process == to ? values : std::vector<float>());
      }
      EXPECT_EQ(read_state(rig.ranks, entries), values);
    });
  });
  for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
}

// The ranks that hold a piece hold different values here: those of the lowest are sent.
TEST(StatesCuts, TheLowestRankThatHoldsAPieceSendsIt) {
  const CutRig rig(table_of_cuts());
  rig.each([&](const StateEntries& entries) {
    std::vector<float> expected(index(tensor_elements(*entries.front())));
    for (const State* const state : entries) {
      for (std::int64_t rank = 5; rank >= 0; --rank) {
        const std::int64_t width =
            dtype_bytes(rig.ranks.schedule().buffers[index(state->buffer)].dtype);
        const float value = value_of(rank);
        std::vector<std::byte> slot(kAlignment);
        for (std::size_t at = 0; at < slot.size(); at += index(width)) {
          // Either type begins with the same upper half of its last two bytes.
          std::memcpy(slot.data() + at, reinterpret_cast<const std::byte*>(&value) + 4 - width,
                      index(width));
        }
        const std::int64_t slots = rig.ranks.schedule().buffers[index(state->buffer)].slots;
        for (std::int64_t i = 0; i < slots; ++i) {
          rig.ranks.executor(rank).write(state->buffer, i, slot);
        }
        for (const std::int64_t element : held_elements(*state, rank)) {
          expected[index(element)] = value;
        }
      }
    }
    EXPECT_EQ(read_state(rig.ranks, entries), expected);
  });
}

// A parameter that two ranks share.
Schedule large(const std::vector<std::int64_t>& shape, TensorCut cut) {
  Schedule schedule;
  schedule.ranks = 2;
  State state;
  state.cut = std::move(cut);
  add_states(schedule, {"w", shape, {state}}, "parameter", Dtype::f32);
  return placed(std::move(schedule));
}

TEST(StatesCuts, AreReadInFewRanges) {
  const auto held_by_each = [](const Schedule& schedule) {
    std::vector<std::vector<ElementRange>> held(2);
    const auto errors = run_processes(2, [&](World& world, const Connect& connect) {
      const CutRig rig(schedule, in_process(world, connect));
      held[index(world.place().process)] =
          held_ranges(rig.ranks, states_of(rig.ranks.schedule(), "w", "parameter"));
    });
    for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
    return held;
  };
  using Ranges = std::vector<ElementRange>;
  EXPECT_THAT(held_by_each(large({30, 100}, {1, 0, {100}, 2, every(1, 2)})),
              testing::ElementsAre(Ranges{{0, 2950}}, Ranges{{50, 3000}}));
  const std::int64_t row = kReadThrough;  // as long as a gap that is read through
  EXPECT_THAT(held_by_each(large({4, row}, {0, 0, {2, 2}, 2, every(1, 2)})),
              testing::ElementsAre(Ranges{{0, 3 * row}}, Ranges{{row, 4 * row}}));
  EXPECT_THAT(held_by_each(large({4, row + 1}, {0, 0, {2, 2}, 2, every(1, 2)})),
              testing::ElementsAre(Ranges{{0, row + 1}, {2 * row + 2, 3 * row + 3}},
                                   Ranges{{row + 1, 2 * row + 2}, {3 * row + 3, 4 * row + 4}}));
}

TEST(StatesCuts, StreamInPartsOfBoundedSize) {
  const std::int64_t row = 1'600'000;
  const CutRig rig(large({3, row}, {1, 0, {row}, 2, every(1, 2)}));
  const StateEntries entries = states_of(rig.ranks.schedule(), "w", "parameter");
  Pool pool(1);
  fill_state(rig.ranks, entries, pool, [](std::int64_t first, std::span<float> values) {
    for (float& value : values) value = static_cast<float>(first++);
  });
  std::int64_t next = 0, differ = 0;
  std::vector<std::int64_t> parts;
  stream_state(rig.ranks, entries, 0, [&](std::int64_t, std::span<const float> values) {
    parts.push_back(std::ssize(values));
    for (const float value : values) differ += value == static_cast<float>(next++) ? 0 : 1;
  });
  EXPECT_EQ(differ, 0);
  EXPECT_THAT(parts, testing::ElementsAre(kStreamElements, 3 * row - kStreamElements));
}

}  // namespace
}  // namespace fpdt
