// Traces with times set by hand, checked op by op and byte by byte.
#include "fpdt/runtime/recorder.h"

#include <gtest/gtest.h>

#include "fpdt/runtime/accounts.h"

#include "tiny.h"

namespace fpdt {
namespace {

// Two chunks through a ring of one slot: fetch, use, fetch, use.
struct Example {
  Tiny tiny{1, "step"};
  VerifiedSchedule schedule = build();

  VerifiedSchedule build() {
    const BufferIndex in = tiny.buffer("in", MemorySpace::host, Role::input, {64}, 2);
    const BufferIndex x = tiny.buffer("x", MemorySpace::device, Role::temporary, {64}, 1);
    const BufferIndex y = tiny.buffer("y", MemorySpace::device, Role::temporary, {64}, 2);
    for (std::int64_t i = 0; i < 2; ++i) {
      const Operand value{x, Version::plus(i)};
      tiny.op("fetch." + std::to_string(i), LaneKind::h2d,
              Copy{{in, Version::at(i)}, {value, false}});
      tiny.op("use." + std::to_string(i), LaneKind::compute,
              Copy{value, {{y, Version::plus(i)}, false}});
    }
    tiny.advance(x, 2);
    tiny.advance(y, 2);
    return tiny.finish(1);
  }
};

TEST(Recorder, SpansStartAtZeroAndCarryTheirNames) {
  const Example example;
  const Program program(example.schedule.schedule());
  const std::vector<Interval> intervals{{100, 110}, {111, 120}, {120, 130}, {130, 150}};
  ASSERT_EQ(op_count(program, program.schedule->train), 4);
  const Trace trace = make_trace(program, program.schedule->train, intervals, 3);
  EXPECT_EQ(trace.rank, 3);
  EXPECT_EQ(trace.lanes, (std::vector<std::string>{"compute.0", "h2d.0"}));
  EXPECT_EQ(trace.ops,
            (std::vector<std::string>{"step.fetch.0", "step.use.0", "step.fetch.1", "step.use.1"}));
  EXPECT_EQ(trace.spans,
            (std::vector<Span>{
                {0, 1, 0, 0, 10}, {1, 0, 0, 11, 20}, {2, 1, 0, 20, 30}, {3, 0, 0, 30, 50}}));
}

TEST(Recorder, ValuesLiveFromTheirFirstOpToTheirLast) {
  const Example example;
  const Program program(example.schedule.schedule());
  const std::vector<Interval> intervals{{0, 10}, {11, 20}, {20, 30}, {30, 50}};
  const Trace trace = make_trace(program, program.schedule->train, intervals, 0);
  // 256 bytes each: x [0, 20) and [20, 50), y.0 [11, 20), y.1 [30, 50).
  EXPECT_EQ(
      find_curve(trace, "device")->points,
      (std::vector<LivePoint>{
          {0, Bytes{256}}, {11, Bytes{512}}, {20, Bytes{256}}, {30, Bytes{512}}, {50, Bytes{0}}}));
  EXPECT_EQ(find_curve(trace, "host")->points, (std::vector<LivePoint>{{0, Bytes{512}}}));
  EXPECT_EQ(find_overrun(trace), "");
}

TEST(Recorder, OverrunIsNamed) {
  Trace trace;
  trace.memory = {{"device", Bytes{1024}, {{0, Bytes{1025}}}}};
  EXPECT_EQ(find_overrun(trace), "1.00 KiB is live in device, but its arena has 1.00 KiB");
}

}  // namespace
}  // namespace fpdt
