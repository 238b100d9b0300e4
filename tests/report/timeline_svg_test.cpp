// The SVG timeline is well-formed and has the trace's numbers, whatever the options.
#include "fpdt/report/timeline_svg.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "fpdt/report/axis.h"
#include "fpdt/report/svg.h"

#include "made_up.h"
#include "xml.h"

namespace fpdt {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TimelinePicture picture_of(const test::MadeUp& made) {
  TimelinePicture picture;
  picture.run = made.run();
  picture.title = "tiny & <small>";
  picture.subtitle = "two chunks";
  picture.device_capacity = Bytes{400 << 10};
  picture.host_capacity = Bytes{70 << 10};
  return picture;
}

TEST(TimelineSvg, IsWellFormedAndSaysThePeaks) {
  const test::MadeUp made(3);
  TimelinePicture picture = picture_of(made);
  picture.zoom = middle_call(picture.run);
  const std::string svg = timeline_svg(picture);
  EXPECT_EQ(test::xml_error(svg), "");
  EXPECT_TRUE(has(svg, "tiny &amp; &lt;small&gt;"));
  const Live live = find_live(picture.run);
  for (const MemorySpace space : {MemorySpace::device, MemorySpace::host_pinned}) {
    EXPECT_TRUE(has(svg, "peak " + format_bytes(find_peak(live, space).bytes)));
  }
  EXPECT_TRUE(has(svg, "capacity 400 KiB"));
  EXPECT_TRUE(has(svg, "arena " + format_bytes(arena_end(made.schedule, MemorySpace::device))));
  for (const char* lane : {">compute<", ">h2d<", ">d2h<", ">comm<"}) EXPECT_TRUE(has(svg, lane));
  EXPECT_TRUE(has(svg, "backward × 2"));
  EXPECT_EQ(svg, timeline_svg(picture));
}

TEST(TimelineSvg, DrawsTwoTraces) {
  const test::MadeUp made(2);
  TimelinePicture picture = picture_of(made);
  picture.measured = {made.second()};
  picture.zoom = middle_call(picture.run);
  const std::string svg = timeline_svg(picture);
  EXPECT_EQ(test::xml_error(svg), "");
  EXPECT_TRUE(has(svg, "step, simulated"));
  EXPECT_TRUE(has(svg, "step, measured"));
  EXPECT_TRUE(has(svg, "lower rows: measured"));
}

// Ranks start a millisecond apart; each stands where it ran on their common clock.
TEST(TimelineSvg, DrawsAllRanksOnOneClock) {
  const test::MadeUp made(2);
  constexpr std::int64_t kApart = 1'000'000;
  const std::vector<Trace> ranks = test::ranks_of(made.measured, 3, kApart);
  TimelinePicture picture = picture_of(made);
  picture.measured = test::runs_of(made, ranks);
  const std::string svg = timeline_svg(picture);
  EXPECT_EQ(test::xml_error(svg), "");
  for (const char* label : {">rank 0<", ">rank 1<", ">rank 2<"}) EXPECT_TRUE(has(svg, label));
  EXPECT_TRUE(has(svg, "lines and lower rows: measured on one clock")) << svg;
  const TimelineData data = timeline_data(picture);
  ASSERT_EQ(data.ranks.size(), 3U);
  const std::int64_t first = data.ranks[0].lanes[0].front().begin;
  EXPECT_EQ(data.ranks[2].lanes[0].front().begin, first + 2 * kApart);
  EXPECT_EQ(data.end, duration(made.measured) + 2 * kApart);
  EXPECT_EQ(data.end, duration(ranks));
  EXPECT_TRUE(has(svg, "step of 3 ranks, measured"));
  EXPECT_TRUE(has(svg, ">" + format_nanoseconds(data.end) + " ("));
}

// The last and the fullest rank are drawn, whatever their number.
TEST(TimelineSvg, SaysWhichRanksAreLeftOut) {
  const test::MadeUp made(1);
  std::vector<Trace> ranks = test::ranks_of(made.measured, 12, 10);
  ranks[10].memory = {{"device", Bytes{5}, {{0, Bytes{3}}}}};
  TimelinePicture picture = picture_of(made);
  picture.measured = test::runs_of(made, ranks);
  const std::string svg = timeline_svg(picture);
  EXPECT_TRUE(has(svg, "lines: rank 10, the fullest on the device")) << svg;
  EXPECT_TRUE(has(svg, "rows of ranks 6-9 are left out")) << svg;
  EXPECT_TRUE(has(svg, ">rank 11<"));
  EXPECT_FALSE(has(svg, ">rank 7<"));
}

TEST(TimelineSvg, CapacityFarAboveStandsBesideThePlot) {
  const test::MadeUp made(2);
  TimelinePicture picture = picture_of(made);
  picture.device_capacity = Bytes{std::int64_t{80} << 30};
  EXPECT_TRUE(has(timeline_svg(picture), "▲ capacity 80.0 GiB"));
  picture.device_capacity = {};
  picture.host_capacity = {};
  EXPECT_FALSE(has(timeline_svg(picture), "capacity"));
}

TEST(TimelineSvg, SomeCallsAreNotTheStep) {
  const test::MadeUp made(2);
  const Trace part = test::cut(made.trace, 0, 8);
  TimelinePicture picture = picture_of(made);
  EXPECT_TRUE(has(timeline_svg(picture), "step, simulated"));
  picture.run.trace = &part;
  const std::string svg = timeline_svg(picture);
  EXPECT_TRUE(has(svg, "shown, simulated"));
  EXPECT_FALSE(has(svg, "step, simulated"));
}

TEST(TimelineSvg, NoSpansAreNoError) {
  const test::MadeUp made(2);
  Trace empty = made.trace;
  empty.spans.clear();
  TimelinePicture picture = picture_of(made);
  picture.run.trace = &empty;
  EXPECT_TRUE(middle_call(picture.run).empty());
  EXPECT_EQ(test::xml_error(timeline_svg(picture)), "");
}

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
