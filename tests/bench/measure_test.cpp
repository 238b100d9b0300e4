// Which spans count, on made-up traces; and that ops run with the operands that were asked for.
#include "fpdt/bench/measure.h"

#include <algorithm>
#include <cstring>

#include <gtest/gtest.h>

#include "fpdt/bench/cases.h"
#include "fpdt/cpu/backend.h"

namespace fpdt {
namespace {

// Two lanes: op 0 on the first, op 1 on the second, which begins later and ends earlier.
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

TEST(Measure, IntervalsLieBetweenNeighbours) {
  EXPECT_DOUBLE_EQ(mean_interval(two_lanes(), 1), 155e-9);
  Trace trace = two_lanes();
  trace.spans.insert(trace.spans.begin() + 5, {0, 0, 5, 900, 950});  // 1, another, 1, 1
  EXPECT_DOUBLE_EQ(mean_interval(trace, 1), 200e-9);
  EXPECT_EQ(mean_interval(trace, 2), 0);
}

// A CPU backend that records the floats written to it.
class Observer final : public CpuBackend {
 public:
  Observer(Communicator& communicator, std::vector<float>& written)
      : CpuBackend(communicator, {1, Populate::no}), written_(written) {}
  void write(std::byte* target, std::span<const std::byte> source) override {
    const std::size_t before = written_.size();
    written_.resize(before + source.size() / sizeof(float));
    std::memcpy(&written_[before], source.data(), source.size());
    CpuBackend::write(target, source);
  }

 private:
  std::vector<float>& written_;
};

std::vector<float> floats_given(bool noise) {
  Sheet sheet(1, Bytes{1});
  constexpr std::int64_t kFloats = (1 << 20) + 3;  // longer than the repeated block
  const Operand source =
      noise ? sheet.noise(Dtype::f32, 1, kFloats) : sheet.given(Dtype::f32, 1, kFloats);
  sheet.op(LaneKind::compute, Copy{source, sheet.result(Dtype::f32, 1, kFloats)});
  const VerifiedSchedule schedule = sheet.finish();
  std::vector<float> written;
  BenchMachine machine;
  machine.make_backend = [&](Communicator& communicator) {
    return std::make_unique<Observer>(communicator, written);
  };
  measure(schedule, sheet.contents(), machine, {1, 1e-6});
  return written;
}

TEST(Measure, FillsWithPositiveNumbersOrWithNoise) {
  const std::vector<float> positive = floats_given(false);
  EXPECT_GT(*std::min_element(positive.begin(), positive.end()), 0);
  const std::vector<float> noise = floats_given(true);
  EXPECT_LT(*std::min_element(noise.begin(), noise.end()), -0.9F);
  EXPECT_GT(*std::max_element(noise.begin(), noise.end()), 0.9F);
  EXPECT_EQ(std::count(noise.begin() + (1 << 20), noise.begin() + (1 << 20) + 3, 0.0F), 0);
}

TEST(Measure, TheDriverIsAskedWhenArenasAreThere) {
  Sheet sheet(2, Bytes{1});
  least_case().write(sheet);
  const VerifiedSchedule schedule = sheet.finish();
  int asked = 0;
  BenchMachine machine;
  machine.threads = 1;
  EXPECT_EQ(measure(schedule, sheet.contents(), machine, {1, 1e-6}).used, Bytes{0});
  machine.used_memory = [&asked] { return Bytes{++asked * 100}; };
  EXPECT_EQ(measure(schedule, sheet.contents(), machine, {1, 1e-6}).used, Bytes{100});
}

TEST(Measure, RecordsEveryRankAndRound) {
  constexpr std::int64_t kRanks = 2;
  Sheet sheet(kRanks, Bytes{1 << 20});
  collective_cases(1024, kRanks).front().write(sheet);
  const VerifiedSchedule schedule = sheet.finish();
  BenchMachine machine;
  machine.threads = 1;
  const std::vector<Trace> traces = measure(schedule, sheet.contents(), machine, {3, 1e-4}).traces;
  ASSERT_EQ(traces.size(), 3U * kRanks);
  const auto op = static_cast<std::int32_t>(schedule.schedule().blocks.front().ops.size());
  for (const Trace& trace : traces) {
    EXPECT_GT(mean_seconds(trace, op), 0);
    // All ranks take steps of the same calls.
    EXPECT_EQ(trace.spans.size(), traces.front().spans.size());
  }
}

}  // namespace
}  // namespace fpdt
