// Which spans count, on traces made up; and that what runs is what was asked for.
#include "fpdt/bench/measure.h"

#include <gtest/gtest.h>

#include "fpdt/bench/cases.h"

namespace fpdt {
namespace {

// Two lanes: ops 0 on the first, ops 1 on the second, which begins later and ends earlier.
Trace two_lanes() {
  Trace trace;
  trace.lanes = {"compute.0", "h2d.0"};
  trace.ops = {"many.op0", "many.op1"};
  trace.spans = {{0, 0, 1, 0, 100},  {0, 0, 2, 100, 300}, {0, 0, 3, 300, 500}, {0, 0, 4, 500, 900},
                 {1, 1, 1, 90, 200}, {1, 1, 2, 200, 400}, {1, 1, 3, 400, 600}};
  return trace;
}

TEST(Measure, MeansOfAnOp) {
  EXPECT_DOUBLE_EQ(mean_seconds(two_lanes(), 0), 225e-9);
  EXPECT_DOUBLE_EQ(mean_seconds(two_lanes(), 1), 170e-9);
  EXPECT_EQ(mean_seconds(two_lanes(), 2), 0);
}

TEST(Measure, BesideMeansWhileTheOtherLaneIsAtWork) {
  EXPECT_DOUBLE_EQ(mean_seconds_beside(two_lanes(), 0, 1), 200e-9);
  EXPECT_DOUBLE_EQ(mean_seconds_beside(two_lanes(), 1, 0), 170e-9);
}

TEST(Measure, RecordsEveryRankAndRound) {
  constexpr std::int64_t kRanks = 2;
  Sheet sheet(kRanks);
  collective_cases(1024, kRanks).front().write(sheet);
  const VerifiedSchedule schedule = sheet.finish();
  const std::vector<Trace> traces = measure(schedule, sheet.contents(), {1, 3, 1e-4});
  ASSERT_EQ(traces.size(), 3U * kRanks);
  const auto op = static_cast<std::int32_t>(schedule.schedule().blocks.front().ops.size());
  for (const Trace& trace : traces) {
    EXPECT_GT(mean_seconds(trace, op), 0);
    // All ranks make steps of the same calls.
    EXPECT_EQ(trace.spans.size(), traces.front().spans.size());
  }
}

}  // namespace
}  // namespace fpdt
