// What pictures show of a step, and the colours and words of its kinds.
#include "fpdt/report/timeline.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "fpdt/report/svg.h"

#include "made_up.h"

namespace fpdt {
namespace {

TEST(Timeline, MiddleCallIsOfTheLongestBlock) {
  const test::MadeUp made(3);
  const CallRange range = middle_call(made.run());
  ASSERT_EQ(range.last, range.first + 1);
  const Call& call = made.schedule.train[static_cast<std::size_t>(range.first)];
  EXPECT_EQ(made.schedule.blocks[static_cast<std::size_t>(call.block)].name, "backward");
}

TEST(Timeline, PhasesLeaveOutVariants) {
  EXPECT_EQ(phase_of("backward_last"), "backward");
  EXPECT_EQ(phase_of("forward_inside"), "forward");
  EXPECT_EQ(phase_of("rerun_middle_window_1_to2"), "rerun");
  EXPECT_EQ(phase_of("backward"), "backward");
  EXPECT_EQ(phase_of("begin_layer"), "begin_layer");
}

TEST(Timeline, LanesHoldEveryOpInOrder) {
  const test::MadeUp made(3);
  const LaneTimes times = lane_times(made.run());
  std::size_t ops = 0;
  for (std::size_t lane = 0; lane < times.lanes.size(); ++lane) {
    ops += times.lanes[lane].size();
    EXPECT_EQ(busy(times.lanes[lane], 0, duration(made.trace)),
              busy(made.trace, static_cast<std::int32_t>(lane)));
    EXPECT_TRUE(std::is_sorted(times.lanes[lane].begin(), times.lanes[lane].end(),
                               [](const auto& a, const auto& b) { return a.begin < b.begin; }));
  }
  EXPECT_EQ(ops, made.trace.spans.size());
}

TEST(Palette, KindsFollowDirectionAndBody) {
  constexpr BufferIndex kDevice = 0, kHost = 1;
  Schedule schedule;
  schedule.buffers.resize(2);
  schedule.buffers[kHost].space = MemorySpace::host_pinned;
  Op op;
  const auto kind = [&] { return kind_of(schedule, op); };
  const auto copy = [](BufferIndex from, BufferIndex to) {
    Copy body;
    body.source.buffer = from;
    body.target.operand.buffer = to;
    return body;
  };
  op.body = AttentionForward{};
  EXPECT_EQ(kind(), OpKind::attention_forward);
  std::get<AttentionForward>(op.body).pass = Pass::recompute;
  EXPECT_EQ(kind(), OpKind::attention_recompute);
  op.body = AdamW{};
  EXPECT_EQ(kind(), OpKind::optimizer);
  op.body = Route{};
  EXPECT_EQ(kind(), OpKind::experts);
  op.body = GroupedGradient{};
  EXPECT_EQ(kind(), OpKind::experts);
  op.body = copy(kDevice, kDevice);
  EXPECT_EQ(kind(), OpKind::other);
  // One lane of copies has both directions.
  op.lane.kind = LaneKind::h2d;
  op.body = copy(kDevice, kHost);
  EXPECT_EQ(kind(), OpKind::spill);
  op.body = copy(kHost, kDevice);
  EXPECT_EQ(kind(), OpKind::fetch);
  op.lane.kind = LaneKind::comm;
  op.body = AllGather{};
  EXPECT_EQ(kind(), OpKind::gather);
  op.body = AllToAll{};
  EXPECT_EQ(kind(), OpKind::all_to_all);
}

// The first layer of a segment repeats forward in a block of its own: its time is not forward's.
TEST(Palette, RepeatedForwardIsRecomputed) {
  const test::MadeUp made(2, 2);
  const LaneTimes times = lane_times(made.run());
  std::int64_t forward = 0, again = 0;
  for (const std::vector<LaneOp>& lane : times.lanes) {
    for (const LaneOp& one : lane) {
      const Call& call = made.schedule.train[static_cast<std::size_t>(one.place.call)];
      const Block& block = made.schedule.blocks[static_cast<std::size_t>(call.block)];
      const Body& body = block.ops[static_cast<std::size_t>(one.place.op)].body;
      if (!std::holds_alternative<AttentionForward>(body)) continue;
      (block.name.starts_with("forward") ? forward : again) += one.end - one.begin;
    }
  }
  const KindTimes sums = kind_times(times, 0, duration(made.trace));
  EXPECT_GT(again, forward);  // of the segment, and once more before its backward
  EXPECT_EQ(sums[static_cast<std::size_t>(OpKind::attention_forward)], forward);
  EXPECT_EQ(sums[static_cast<std::size_t>(OpKind::attention_recompute)], again);
}

TEST(Svg, CoordinatesAreShort) {
  EXPECT_EQ(coordinate(3), "3");
  EXPECT_EQ(coordinate(3.14159), "3.1");
  EXPECT_EQ(coordinate(-0.26), "-0.3");
  EXPECT_EQ(coordinate(-0.01), "0");
}

TEST(Svg, LongTextsAreCutBetweenLetters) {
  EXPECT_EQ(fit_text("short", 12, 100), "short");
  const std::string cut = fit_text("µµµµµµµµµµµµµµµµµµµµ", 12, 60);
  EXPECT_LE(text_width(cut, 12), 60);
  EXPECT_TRUE(cut.ends_with("…"));
  EXPECT_EQ(cut.size() % 2, 1U);  // whole letters of two bytes, and the ellipsis of three
}

}  // namespace
}  // namespace fpdt
