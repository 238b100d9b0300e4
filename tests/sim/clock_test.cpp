// Runs small programs on the clock and compares with times worked out by hand.
#include "fpdt/sim/clock.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace fpdt {
namespace {

constexpr Lane kCompute{LaneKind::compute, 0};
constexpr Lane kCopy{LaneKind::h2d, 0};
constexpr Lane kSpill{LaneKind::d2h, 0};

// A schedule of one block whose ops touch nothing, and the ticks of each op.
struct Score {
  Schedule schedule;
  std::vector<std::vector<std::int64_t>> ticks;
  PaceTable pace{};

  Score() {
    for (auto& kind : pace) kind.fill(kWorkPerTick);
  }
  Score& block() {
    schedule.blocks.push_back({"block", {}, {}});
    ticks.emplace_back();
    return *this;
  }
  Score& op(Lane lane, std::int64_t length, std::vector<After> after = {}) {
    schedule.blocks.back().ops.push_back({"op", lane, Fill{}, std::move(after)});
    ticks.back().push_back(length);
    return *this;
  }
  Score& call(std::int32_t block, int times = 1) {
    for (int i = 0; i < times; ++i) schedule.train.push_back({block, 0, 0, 0});
    return *this;
  }
  // [begin, end) of every op in issue order.
  using Times = std::vector<std::pair<std::int64_t, std::int64_t>>;
  [[nodiscard]] Times times() const {
    const Program program(schedule);
    ClockQuestion question{program, schedule.train, ticks, pace};
    question.traced.assign(schedule.train.size(), true);
    std::vector<TickSpan> spans = run_clock(question).spans;
    std::sort(spans.begin(), spans.end(), [](const TickSpan& a, const TickSpan& b) {
      return std::pair(a.call, a.op) < std::pair(b.call, b.op);
    });
    Times all;
    for (const TickSpan& span : spans) all.emplace_back(span.begin, span.end);
    return all;
  }
  [[nodiscard]] ClockAnswer answer(bool skip) const {
    const Program program(schedule);
    ClockQuestion question{program, schedule.train, ticks, pace};
    question.skip_periods = skip;
    return run_clock(question);
  }
};

using Times = Score::Times;

TEST(Clock, LanesRunInOrderAndWaitForEdges) {
  Score score;
  score.block().op(kCopy, 5).op(kCompute, 3).op(kCompute, 2, {{0, 0, 0}}).op(kCopy, 1).call(0);
  EXPECT_EQ(score.times(), (Times{{0, 5}, {0, 3}, {5, 7}, {5, 6}}));
}

TEST(Clock, EdgesToEarlierCallsAreVoidInTheFirst) {
  Score score;
  score.block().op(kCopy, 4, {{0, 1, 2}}).op(kCompute, 10, {{0, 0, 0}}).call(0, 3);
  // Two copies run ahead of their use. The third copy waits for the first compute op.
  EXPECT_EQ(score.times(), (Times{{0, 4}, {4, 14}, {4, 8}, {14, 24}, {14, 18}, {24, 34}}));
}

TEST(Clock, OpsSideBySideSlowEachOther) {
  Score score;
  const unsigned copies = 1U << static_cast<unsigned>(LaneKind::h2d);
  for (unsigned active = 0; active < 16; ++active) {
    if ((active & copies) != 0) {
      score.pace[static_cast<std::size_t>(LaneKind::compute)][active] = kWorkPerTick / 2;
    }
  }
  score.block().op(kCompute, 10).op(kCopy, 6).op(kCompute, 4).call(0);
  // Six ticks at half the pace leave seven of ten ticks.
  EXPECT_EQ(score.times(), (Times{{0, 13}, {0, 6}, {13, 17}}));
}

TEST(Clock, AnOpEndsAtTheFirstTickWithoutWork) {
  Score score;
  for (auto& kind : score.pace) kind.fill(1000);
  score.block().op(kCompute, 10).op(kCompute, 125).call(0);
  // 10 * 1024 = 10.24 * 1000, and 125 * 1024 = 128 * 1000.
  EXPECT_EQ(score.times(), (Times{{0, 11}, {11, 139}}));
}

TEST(Clock, CountsWhatLanesAndKindsAreBusyWith) {
  Score score;
  score.block().op(kCopy, 5).op(kCompute, 3).op(kCompute, 2, {{0, 0, 0}}).call(0, 2);
  const ClockAnswer answer = score.answer(false);
  EXPECT_EQ(answer.lane_busy, (std::vector<std::int64_t>{10, 10, 0, 0}));
  EXPECT_EQ(answer.kind_busy[Body(Fill{}).index()], 20);
  EXPECT_EQ(answer.end, 12);
  EXPECT_EQ(answer.calls[1].begin, 5);
  EXPECT_EQ(answer.calls[1].end, 12);
}

TEST(Clock, SkipsCallsThatRepeat) {
  Score score;
  score.block().op(kCopy, 7, {{0, 1, 2}}).op(kCompute, 10, {{0, 0, 0}}).call(0, 1000);
  const ClockAnswer all = score.answer(false);
  const ClockAnswer some = score.answer(true);
  EXPECT_EQ(all.end, 7 + 10 * 1000);
  EXPECT_EQ(some.end, all.end);
  EXPECT_EQ(some.calls[777].begin, all.calls[777].begin);
  EXPECT_EQ(some.calls[777].end, all.calls[777].end);
  EXPECT_EQ(all.simulated, 2000);
  EXPECT_LT(some.simulated, 30);
}

// The spill lane is idle until the last block, then waits for earlier compute ops. Its first op may
// start at once.
TEST(Clock, SkipsWhileALaneIsFarAhead) {
  Score score;
  score.block().op(kCompute, 10).call(0, 1000);
  score.block().op(kSpill, 25).op(kSpill, 5, {{0, 0, 1}}).call(1);
  const ClockAnswer all = score.answer(false);
  const ClockAnswer some = score.answer(true);
  EXPECT_EQ(all.calls.back().begin, 0);
  EXPECT_EQ(all.end, 10005);
  EXPECT_EQ(some.end, all.end);
  EXPECT_EQ(some.calls.back().begin, 0);
  EXPECT_LT(some.simulated, 30);
}

// Calls look alike, but the copy of the first layers comes one call earlier than that of the last.
TEST(Clock, DoesNotSkipPastALayerThatComesSooner) {
  Score score;
  score.block().op(kCopy, 30);
  score.block().op(kCompute, 10, {{0, 0, 2, true}});
  for (std::int32_t i = 0; i < 400; ++i) {
    score.schedule.train.push_back({0, i, 0, 0});
    score.schedule.train.push_back({1, i < 200 ? i - 1 : i, 0, 0});
  }
  const ClockAnswer all = score.answer(false);
  const ClockAnswer some = score.answer(true);
  EXPECT_EQ(all.end, 30 * 400 + 10);
  EXPECT_EQ(some.end, all.end);
  EXPECT_TRUE(some.calls == all.calls);
  EXPECT_LT(some.simulated, 80);
}

// One lane is blocked only until the middle of the run.
TEST(Clock, DoesNotSkipPastWhatABlockedLaneWaitsFor) {
  Score score;
  score.block().op(kCompute, 10).call(0, 500);
  score.call(0, 500);
  score.block().op(kCopy, 3, {{0, 0, 400}}).op(kCompute, 1).call(1);
  score.pace[0][1U << static_cast<unsigned>(LaneKind::h2d) | 1U] = kWorkPerTick / 2;
  const ClockAnswer all = score.answer(false);
  const ClockAnswer some = score.answer(true);
  // The copy runs after call 600 and makes computing half as fast for three ticks.
  EXPECT_EQ(all.calls.back().begin, 6010);
  EXPECT_EQ(some.calls.back().begin, 6010);
  EXPECT_EQ(all.end, 10000 + 2 + 1);
  EXPECT_EQ(some.end, all.end);
  EXPECT_LT(some.simulated, 50);
}

// Two ranks compute for 10 and 4 ticks before they meet in an op of 3. In each call the second
// idles for 6 ticks.
TEST(Clock, RanksWaitForEachOtherWhereTheyMeet) {
  Score slow;
  slow.block().op(kCompute, 10).op(kCopy, 3, {{0, 0, 0}}).op(kCompute, 1, {{0, 1, 0}}).call(0, 2);
  const Program program(slow.schedule);
  std::vector<ClockQuestion> ranks(2, {program, slow.schedule.train, slow.ticks, slow.pace});
  ranks[1].ticks[0][0] = 4;
  for (ClockQuestion& rank : ranks) rank.traced.assign(2, true);
  const std::vector<ClockAnswer> met = run_clocks(ranks, {{{{}, {1}, {}}}, {{{}, {0}, {}}}});
  ASSERT_EQ(met.size(), 2U);
  const auto begins = [&](std::size_t rank) {
    std::vector<std::int64_t> times;
    for (const TickSpan& span : met[rank].spans) times.push_back(span.begin);
    return times;
  };
  EXPECT_EQ(begins(0), (std::vector<std::int64_t>{0, 10, 13, 14, 24, 27}));
  EXPECT_EQ(begins(1), (std::vector<std::int64_t>{0, 10, 13, 14, 24, 27}));
  EXPECT_EQ(met[0].end, 28);
  EXPECT_EQ(met[0].lane_busy[0], 22);
  EXPECT_EQ(met[1].lane_busy[0], 10);
  // Without meeting, the second is done before.
  EXPECT_EQ(run_clocks(ranks, {{{{}, {}, {}}}, {{{}, {}, {}}}})[1].end, 16);
}

// Around a ring of four, a late rank delays its neighbours at once and the one beyond them a hop
// later.
TEST(Clock, ARankWaitsOnlyForThoseThatItMeets) {
  Score score;
  score.block().op(kCompute, 5).op(kCopy, 2, {{0, 0, 0}}).op(kCopy, 2).call(0);
  const Program program(score.schedule);
  std::vector<ClockQuestion> ranks(4, {program, score.schedule.train, score.ticks, score.pace});
  ranks[0].ticks[0][0] = 9;
  std::vector<Partners> partners;
  for (std::int32_t rank = 0; rank < 4; ++rank) {
    const std::vector<std::int32_t> beside{(rank + 1) % 4, (rank + 3) % 4};
    partners.push_back({{{}, beside, beside}});
  }
  const std::vector<ClockAnswer> met = run_clocks(ranks, partners);
  std::vector<std::int64_t> ends;
  for (const ClockAnswer& one : met) ends.push_back(one.end);
  EXPECT_EQ(ends, (std::vector<std::int64_t>{13, 13, 13, 13}));
  for (ClockQuestion& rank : ranks) rank.traced.assign(1, true);
  std::vector<std::int64_t> first_hops;
  for (const ClockAnswer& one : run_clocks(ranks, partners)) {
    first_hops.push_back(one.spans[1].begin);
  }
  EXPECT_EQ(first_hops, (std::vector<std::int64_t>{9, 9, 5, 9}));
}

}  // namespace
}  // namespace fpdt
