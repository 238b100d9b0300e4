// Sums over a small trace.
#include "fpdt/trace/trace.h"

#include <gtest/gtest.h>

namespace fpdt {
namespace {

// compute.0  [0 --- 5]      [8 - 10]
// h2d.0         [2 - 4]
Trace example() {
  Trace trace;
  trace.lanes = {"compute.0", "h2d.0"};
  trace.ops = {"step.fetch", "step.multiply"};
  trace.spans = {{1, 0, 0, 0, 5}, {0, 1, 0, 2, 4}, {1, 0, 1, 8, 10}};
  trace.memory = {{"device", Bytes{100}, {{0, Bytes{10}}, {4, Bytes{70}}, {8, Bytes{0}}}}};
  return trace;
}

TEST(Trace, DurationIsTheLastEnd) {
  EXPECT_EQ(duration(example()), 10);
  EXPECT_EQ(duration(Trace{}), 0);
}

TEST(Trace, BusyCountsOneLane) {
  EXPECT_EQ(busy(example(), 0), 7);
  EXPECT_EQ(busy(example(), 1), 2);
}

TEST(Trace, PeakIsTheLargestPoint) {
  EXPECT_EQ(peak(example().memory[0]), Bytes{70});
  EXPECT_EQ(peak(LiveCurve{}), Bytes{0});
}

TEST(Trace, CurvesAreFoundBySpace) {
  const Trace trace = example();
  EXPECT_EQ(find_curve(trace, "device"), &trace.memory[0]);
  EXPECT_EQ(find_curve(trace, "host"), nullptr);
}

}  // namespace
}  // namespace fpdt
