// Sums of a small step, worked out by hand.
#include "fpdt/report/compare.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace fpdt {
namespace {

// A product, a fill, and a copy in each direction, in two calls.
Schedule four_ops() {
  Schedule schedule;
  schedule.buffers.resize(2);
  schedule.buffers[1].space = MemorySpace::host_pinned;
  Copy fetch;
  fetch.source.buffer = 1;
  fetch.target.operand.buffer = 0;
  Copy round = fetch;
  round.source.buffer = 0;
  Block block{"step", {}, {}};
  block.ops.push_back({"multiply", {LaneKind::compute, 0}, Matmul{}, {}});
  block.ops.push_back({"clear", {LaneKind::compute, 0}, Fill{}, {}});
  block.ops.push_back({"fetch", {LaneKind::h2d, 0}, fetch, {}});
  block.ops.push_back({"round", {LaneKind::compute, 0}, round, {}});
  schedule.blocks.push_back(block);
  schedule.train = {{0, 0, 0, 0}, {0, 1, 0, 0}};
  return schedule;
}

// Every op takes the given milliseconds, in both calls.
Trace trace_of(std::int64_t multiply, std::int64_t clear, std::int64_t fetch, std::int64_t round) {
  constexpr std::int64_t kMillisecond = 1'000'000;
  Trace trace;
  trace.lanes = {"compute.0", "h2d.0"};
  trace.ops = {"step.multiply", "step.clear", "step.fetch", "step.round"};
  std::int64_t compute = 0;
  std::int64_t h2d = 0;
  const auto span = [&](std::int32_t op, std::int32_t lane, std::int32_t call, std::int64_t& at,
                        std::int64_t took) {
    trace.spans.push_back({op, lane, call, at, at + took * kMillisecond});
    at += took * kMillisecond;
  };
  for (const std::int32_t call : {0, 1}) {
    span(0, 0, call, compute, multiply);
    span(1, 0, call, compute, clear);
    span(2, 1, call, h2d, fetch);
    span(3, 0, call, compute, round);
  }
  return trace;
}

TEST(Compare, AddsUpKindsAndLanes) {
  const Comparison found = compare(four_ops(), trace_of(10, 1, 4, 2), {trace_of(8, 1, 5, 3)});
  EXPECT_DOUBLE_EQ(found.predicted_seconds, 26e-3);
  EXPECT_DOUBLE_EQ(found.measured_seconds, 24e-3);
  ASSERT_EQ(found.kinds.size(), 4U);
  const auto expect = [](const ComparedTime& one, const char* what, std::int64_t ops,
                         double predicted, double measured) {
    EXPECT_EQ(one.what, what);
    EXPECT_EQ(one.ops, ops);
    EXPECT_DOUBLE_EQ(one.predicted, predicted);
    EXPECT_DOUBLE_EQ(one.measured, measured);
  };
  expect(found.kinds[0], "matmul", 2, 20e-3, 16e-3);
  expect(found.kinds[1], "fill", 2, 2e-3, 2e-3);
  expect(found.kinds[2], "copy", 2, 4e-3, 6e-3);
  expect(found.kinds[3], "h2d", 2, 8e-3, 10e-3);
  ASSERT_EQ(found.lanes.size(), 2U);
  expect(found.lanes[0], "compute.0", 6, 26e-3, 24e-3);
  expect(found.lanes[1], "h2d.0", 2, 8e-3, 10e-3);
}

// The step ends with its slowest rank; kinds show the mean over ranks.
TEST(Compare, TakesRanksTogether) {
  const Comparison found =
      compare(four_ops(), trace_of(1, 1, 1, 1), {trace_of(2, 1, 1, 1), trace_of(6, 1, 1, 1)});
  EXPECT_DOUBLE_EQ(found.measured_seconds, 16e-3);
  EXPECT_DOUBLE_EQ(found.kinds[0].measured, 8e-3);
}

// Ranks that start apart take the time from the first start to the last end.
TEST(Compare, StepsOfRanksAreTimedByOneClock) {
  std::vector<Trace> ranks{trace_of(2, 1, 1, 1), trace_of(2, 1, 1, 1)};
  ranks[0].start = 500'000'000;
  ranks[1].start = 503'000'000;
  const Comparison found = compare(four_ops(), trace_of(1, 1, 1, 1), ranks);
  EXPECT_DOUBLE_EQ(found.measured_seconds, 8e-3 + 3e-3);
}

TEST(Compare, ErrorsAreOfWhatWasMeasured) {
  EXPECT_DOUBLE_EQ(relative_error(3, 2), 0.5);
  EXPECT_DOUBLE_EQ(relative_error(1, 2), -0.5);
  EXPECT_EQ(relative_error(1, 0), 0);
}

TEST(Compare, NoErrorHasOneSign) {
  EXPECT_EQ(format_error(999, 1000), "+0 %");
  EXPECT_EQ(format_error(1000, 1000), "+0 %");
  EXPECT_EQ(format_error(1001, 1000), "+0 %");
  EXPECT_EQ(format_error(99, 100), "-1 %");
}

TEST(Compare, PrintsATableAndJson) {
  const Comparison found = compare(four_ops(), trace_of(10, 1, 4, 2), {trace_of(8, 1, 5, 0)});
  const std::string text = table(found);
  EXPECT_NE(text.find("step                        8        26.0        18.0    +44 %\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("matmul                      2        20.0        16.0    +25 %\n"),
            std::string::npos)
      << text;
  const auto parsed = nlohmann::json::parse(json(found));
  EXPECT_EQ(parsed.at("kinds").size(), 4U);
  EXPECT_EQ(parsed.at("kinds")[3].at("what"), "h2d");
  EXPECT_DOUBLE_EQ(parsed.at("predicted_seconds"), 26e-3);
  EXPECT_EQ(parsed.at("lanes")[0].at("ops"), 6);
}

}  // namespace
}  // namespace fpdt
