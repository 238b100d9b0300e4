// Pieces against loops over the whole tensor.
#include "fpdt/train/state_piece.h"

#include <gtest/gtest.h>

#include "fpdt/base/math.h"

#include "cut_states.h"

namespace fpdt {
namespace {

// Calls check(state, piece, elements that it holds) for each entry and rank.
template <class Check>
void each_piece(const Check& check) {
  const Schedule schedule = table_of_cuts();
  for (const State& state : schedule.states) {
    for (std::int64_t rank = 0; rank < schedule.ranks; ++rank) {
      SCOPED_TRACE(testing::Message()
                   << state.tensor << " from " << state.cut.first << ", rank " << rank);
      check(state, StatePiece(schedule, state, rank), held_elements(state, rank));
    }
  }
}

TEST(StatePieces, ConsistOfRunsOfTheTensor) {
  each_piece([](const State&, const StatePiece& piece, const std::vector<std::int64_t>& held) {
    ASSERT_EQ(piece.elements(), std::ssize(held));
    for (std::int64_t begin = 0; begin < piece.elements(); ++begin) {
      std::vector<std::int64_t> found;
      piece.each_run({begin, piece.elements()}, [&](const StateRun& run) {
        EXPECT_EQ(run.at, begin + std::ssize(found));
        for (std::int64_t i = 0; i < run.elements; ++i) found.push_back(run.first + i);
      });
      EXPECT_EQ(found, std::vector<std::int64_t>(held.begin() + begin, held.end()));
    }
  });
}

TEST(StatePieces, KnowWhatARangeOfTheTensorContains) {
  each_piece(
      [](const State& state, const StatePiece& piece, const std::vector<std::int64_t>& held) {
        const auto before = [&](std::int64_t element) {
          return std::lower_bound(held.begin(), held.end(), element) - held.begin();
        };
        const std::int64_t elements = tensor_elements(state);
        for (std::int64_t first = 0; first <= elements; ++first) {
          for (std::int64_t end = first; end <= elements; end += 7) {
            ASSERT_EQ(piece.within({first, end}), (ElementRange{before(first), before(end)}));
          }
        }
      });
}

// A tensor that is not cut passes in as few steps as before there were cuts.
TEST(StatePieces, AreOneRunWithoutACut) {
  Schedule schedule;
  schedule.ranks = 6;
  State whole;
  State sections;
  sections.cut = {1, 0, {3, 4}, 1, {}};
  for (State* const state : {&whole, &sections}) {
    state->shards = 2;
    state->shard = every(1, 2);
    add_states(schedule, {"w", {6, 7}, {*state}}, "parameter", Dtype::f32);
    const StatePiece piece(schedule, schedule.states.back(), 1);
    EXPECT_EQ(piece.run_at(0).first, 21);
    EXPECT_EQ(piece.run_at(0).elements, 21);
  }
}

TEST(StatePieces, GoOnInTheNextSlot) {
  const Schedule schedule = table_of_cuts();
  for (const State& state : schedule.states) {
    const StatePiece piece(schedule, state, 0);
    const Buffer& buffer = schedule.buffers[index(state.buffer)];
    ASSERT_EQ(piece.room(), buffer.slots * buffer.row_elements());
    for (std::int64_t at = 0; at < piece.room(); ++at) {
      const StatePlace place = piece.place_at(at);
      EXPECT_EQ(place.slot * buffer.row_elements() + place.at, at);
      EXPECT_EQ(place.at + place.left, buffer.row_elements());
    }
  }
}

}  // namespace
}  // namespace fpdt
