// The SVG timeline is well-formed and has the trace's numbers, whatever the options.
#include "fpdt/report/timeline_svg.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/base/error.h"
#include "fpdt/report/axis.h"
#include "fpdt/report/compare.h"
#include "fpdt/report/look.h"
#include "fpdt/report/svg.h"
#include "fpdt/report/theme.h"
#include "fpdt/report/timeline_html.h"

#include "made_up.h"
#include "xml.h"

namespace fpdt {
namespace {

using test::has;

TimelinePicture picture_of(const test::MadeUp& made) {
  TimelinePicture picture;
  picture.run = made.run();
  picture.title = "tiny & <small>";
  picture.subtitle = "two chunks";
  picture.device_budget = Bytes{400 << 10};
  picture.host_budget = Bytes{70 << 10};
  return picture;
}

// A text of a picture as drawn in the widest font.
struct Drawn {
  std::string text, style;
  double left = 0, right = 0, y = 0;
};

// The pieces of a picture that begin and end so and match: a search for the pattern takes long.
std::vector<std::smatch> elements(const std::string& svg, std::string_view begin,
                                  std::string_view end, const std::regex& pattern) {
  std::vector<std::smatch> found;
  for (std::size_t at = svg.find(begin); at != svg.npos; at = svg.find(begin, at + 1)) {
    const auto offset = [&svg](std::size_t place) {
      return svg.begin() + static_cast<std::ptrdiff_t>(place);
    };
    const std::size_t behind = svg.find(end, at) + end.size();
    if (std::smatch one; std::regex_match(offset(at), offset(behind), one, pattern)) {
      found.push_back(std::move(one));
    }
  }
  return found;
}

std::vector<Drawn> texts(const std::string& svg) {
  std::map<std::string, std::pair<double, Weight>> styles;
  const std::string head = svg.substr(0, svg.find("</style>"));
  const std::regex rule(R"(\.(\w+)\{([^}]*)\})");
  for (std::sregex_iterator it(head.begin(), head.end(), rule); it != std::sregex_iterator();
       ++it) {
    const std::string text = (*it)[2];
    const std::size_t size = text.find("font-size:") + 10;
    styles[(*it)[1]] = {std::stod(text.substr(size)),
                        has(text, "font-weight") ? Weight::bold : Weight::regular};
  }
  std::vector<Drawn> found;
  const std::regex element(
      "<text x=\"([-.0-9]+)\" y=\"([-.0-9]+)\" class=\"(\\w+)\"( text-anchor=\"(\\w+)\")?[^>]*>"
      "([^<]*)</text>");
  const std::regex escaped("&(amp|lt|gt|quot);");
  for (const std::smatch& one : elements(svg, "<text ", "</text>", element)) {
    std::string text = std::regex_replace(one[6].str(), escaped, "&");
    const auto [size, weight] = styles.at(one[3]);
    const double width = text_width(text, size, weight);
    const double x = std::stod(one[1]);
    const std::string anchor = one[5];
    const double left = anchor == "end" ? x - width : (anchor == "middle" ? x - width / 2 : x);
    found.push_back({std::move(text), one[3], left, left + width, std::stod(one[2])});
  }
  return found;
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
  EXPECT_TRUE(has(svg, "budget 400 KiB"));
  EXPECT_TRUE(has(svg, "arena " + format_bytes(arena_end(made.schedule, MemorySpace::device))));
  for (const char* lane : {">compute<", ">h2d<", ">d2h<", ">comm<"}) EXPECT_TRUE(has(svg, lane));
  EXPECT_TRUE(has(svg, "backward × 2"));
  EXPECT_EQ(svg, timeline_svg(picture));
}

TEST(TimelineSvg, NamesWhatTheBudgetLeavesTheArena) {
  const test::MadeUp made(3);
  TimelinePicture picture = picture_of(made);
  picture.outside = Bytes{100 << 10};
  const std::string svg = timeline_svg(picture);
  EXPECT_TRUE(has(svg, "budget less outside 300 KiB"));
  EXPECT_TRUE(has(svg, " of 400 KiB"));
  EXPECT_TRUE(has(svg, ", 100 KiB outside the arena"));
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
  EXPECT_TRUE(has(svg, "lower rows: measured, on one clock")) << svg;
  const TimelineData data = timeline_data(picture);
  ASSERT_EQ(data.ranks.size(), 3U);
  const std::int64_t first = data.ranks[0].lanes[0].front().begin;
  EXPECT_EQ(data.ranks[2].lanes[0].front().begin, first + 2 * kApart);
  EXPECT_EQ(data.end, duration(made.measured) + 2 * kApart);
  EXPECT_EQ(data.end, duration(ranks));
  EXPECT_TRUE(has(svg, "step of 3 ranks, measured"));
  EXPECT_TRUE(has(svg, ">" + format_nanoseconds(data.end) + "<"));
}

// The picture has the error of the table.
TEST(TimelineSvg, ErrorsAreThoseOfTheTable) {
  const test::MadeUp made(2);
  const std::vector<Trace> ranks = test::ranks_of(made.measured, 2, 500'000);
  TimelinePicture picture = picture_of(made);
  picture.measured = test::runs_of(made, ranks);
  const Comparison found = compare(made.schedule, made.trace, ranks);
  const std::string error = format_error(found.predicted_seconds, found.measured_seconds);
  EXPECT_EQ(error.front(), '-');
  EXPECT_TRUE(has(timeline_svg(picture), fmt::format(">{}<", error))) << error;
  EXPECT_TRUE(has(table(found), error)) << table(found);
}

// The last and the fullest rank are drawn, whatever their number.
TEST(TimelineSvg, SaysWhichRanksAreLeftOut) {
  const test::MadeUp made(1);
  std::vector<Trace> ranks = test::ranks_of(made.measured, 12, 10);
  ranks[10].memory = {{"device", Bytes{5}, {{0, Bytes{3}}}}};
  TimelinePicture picture = picture_of(made);
  picture.measured = test::runs_of(made, ranks);
  const std::string svg = timeline_svg(picture);
  EXPECT_TRUE(has(svg, "the lines are of rank 10, whose memory is fullest on the device")) << svg;
  EXPECT_TRUE(has(svg, "rows of ranks 6-9 are left out")) << svg;
  EXPECT_TRUE(has(svg, ">rank 11<"));
  EXPECT_FALSE(has(svg, ">rank 7<"));
}

TEST(TimelineSvg, DrawsTheChosenRanks) {
  const test::MadeUp made(1);
  const std::vector<Trace> ranks = test::ranks_of(made.measured, 12, 10);
  TimelinePicture picture = picture_of(made);
  picture.measured = test::runs_of(made, ranks);
  picture.rows = {2, 9};
  const std::string svg = timeline_svg(picture);
  EXPECT_TRUE(has(svg, ">rank 2<"));
  EXPECT_TRUE(has(svg, ">rank 9<"));
  EXPECT_FALSE(has(svg, ">rank 0<"));
  EXPECT_FALSE(has(svg, ">rank 11<"));
  EXPECT_TRUE(has(svg, "step of 12 ranks, measured"));
  EXPECT_TRUE(has(svg, "rows of ranks 0-1, 3-8, 10-11 are left out")) << svg;
}

// A simulation records no bytes, but its spans tell them.
TEST(TimelineSvg, FindsTheFullestRankBySpans) {
  const test::MadeUp made(3);
  std::vector<Trace> ranks = test::ranks_of(made.trace, 3, 0);
  // Copies to the host that take longer keep what they read.
  for (Span& span : ranks[1].spans) {
    if (made.trace.lanes[static_cast<std::size_t>(span.lane)] == "d2h.0") span.end += 50'000'000;
  }
  TimelinePicture picture = picture_of(made);
  picture.measured = test::runs_of(made, ranks);
  const auto peak_of = [&](std::size_t rank) {
    return find_peak(find_live(picture.measured[rank]), MemorySpace::device).bytes;
  };
  ASSERT_GT(peak_of(1), peak_of(0));
  EXPECT_TRUE(has(timeline_svg(picture), "the lines are of rank 1, whose memory is fullest"));
  EXPECT_TRUE(has(timeline_svg(picture), format_bytes(peak_of(1))));
}

TEST(TimelineSvg, CapacityFarAboveStandsBesideThePlot) {
  const test::MadeUp made(2);
  TimelinePicture picture = picture_of(made);
  picture.device_budget = Bytes{std::int64_t{80} << 30};
  EXPECT_TRUE(has(timeline_svg(picture), "▲ budget 80.0 GiB"));
  picture.device_budget = {};
  picture.host_budget = {};
  EXPECT_FALSE(has(timeline_svg(picture), "budget"));
}

// A slide says how fast its step is, and nothing twice.
TEST(TimelineSvg, SaysTheRates) {
  const test::MadeUp made(2);
  TimelinePicture picture = picture_of(made);
  picture.rates = {{"MFU, causal", "38.8 %"}};
  const std::string svg = timeline_svg(picture, {1920, 1080});
  EXPECT_TRUE(has(svg, ">MFU, causal<"));
  EXPECT_TRUE(has(svg, ">38.8 %<"));
  const std::vector<Fact> all = facts(timeline_data(picture));
  std::set<std::string> names;
  for (const Fact& fact : all) EXPECT_TRUE(names.insert(fact.name).second) << fact.name;
}

// Space that a schedule does not use has no fact and no panel.
TEST(TimelineSvg, SaysNothingOfAnUnusedHost) {
  test::MadeUp made(2);
  for (Buffer& buffer : made.schedule.buffers) {
    if (buffer.space == MemorySpace::host_pinned) buffer.space = MemorySpace::host;
  }
  const std::string svg = timeline_svg(picture_of(made));
  EXPECT_FALSE(has(svg, "inned host")) << svg;
}

// The name of the arena stands where nothing is drawn, though the peak is at its usual place.
TEST(TimelineSvg, LevelsAreNamedBesideTheData) {
  const test::MadeUp made(3);
  TimelinePicture picture = picture_of(made);
  picture.device_budget = arena_end(made.schedule, MemorySpace::device) + Bytes{2000};
  const std::string svg = timeline_svg(picture);
  const std::vector<Drawn> all = texts(svg);
  const std::string name = "arena " + format_bytes(arena_end(made.schedule, MemorySpace::device));
  const auto label =
      std::find_if(all.begin(), all.end(), [&](const Drawn& one) { return one.text == name; });
  ASSERT_NE(label, all.end());
  // The areas of the device's panel, which is the first.
  const std::string panel = svg.substr(0, svg.find(">Pinned host memory<"));
  const std::regex area("d=\"M([0-9.]+) ([0-9.]+)([^\"]*)Z\" fill=\"#");
  double highest = 1e9;  // above the label
  for (std::sregex_iterator it(panel.begin(), panel.end(), area), end; it != end; ++it) {
    double x = std::stod((*it)[1]), y = std::stod((*it)[2]);
    const std::string path = (*it)[3];
    const std::regex step("([HV])([0-9.]+)");
    for (std::sregex_iterator s(path.begin(), path.end(), step); s != end; ++s) {
      const double to = std::stod((*s)[2]);
      if ((*s)[1] == "V") {
        y = to;
        continue;
      }
      if (std::min(x, to) < label->right && std::max(x, to) > label->left) {
        highest = std::min(highest, y);
      }
      x = to;
    }
  }
  EXPECT_LT(label->y, highest);
}

// The heaviest activations have shades of their own, in both spaces the same.
TEST(TimelineSvg, ActivationsAreToldApart) {
  const test::MadeUp made(3);
  const TimelineData data = timeline_data(picture_of(made));
  EXPECT_EQ(data.live.tinted.size(), kTints);
  std::map<std::string, int> tints;
  for (std::size_t i = 0; i < made.schedule.buffers.size(); ++i) {
    const std::string& name = made.schedule.buffers[i].name;
    if (name.starts_with("kv_")) tints[name] = data.live.tint[i];
  }
  ASSERT_TRUE(tints.contains("kv_host") && tints.contains("kv_new"));
  EXPECT_GE(tints["kv_host"], 0);
  EXPECT_EQ(tints["kv_host"], tints["kv_new"]);
  const std::string svg = timeline_svg(picture_of(made));
  for (std::size_t tint = 0; tint < kTints; ++tint) {
    EXPECT_TRUE(has(svg, fmt::format("Z\" fill=\"{}\"", tint_color(tint)))) << tint;
  }
  for (const LiveStep& step :
       live_steps(data.live, MemorySpace::device, data.live.begin, data.live.end, 1000)) {
    EXPECT_LE(total(step.tints), step.bytes[static_cast<std::size_t>(Part::activations)]);
  }
}

// A bar of a pixel for each of many short ops would be a full lane.
TEST(TimelineSvg, ShortOpsDoNotFillTheirLane) {
  const test::MadeUp made(3);
  Trace trace = made.trace;
  std::int64_t at = 0;  // each op takes a thousandth of its share of the step
  for (Span& span : trace.spans) {
    span.begin = at;
    span.end = at + 1;
    at += 1000;
  }
  TimelinePicture picture = picture_of(made);
  picture.run.trace = &trace;
  picture.device_budget = picture.host_budget = {};
  const std::string svg = timeline_svg(picture);
  EXPECT_FALSE(has(svg, fmt::format("height=\"30\" fill=\"{}\"", color(OpKind::fetch))));
  EXPECT_FALSE(has(svg, fmt::format("height=\"30\" fill=\"{}\"", color(OpKind::matmul))));
}

// Lanes that hardly run take one row, not one for each rank.
TEST(TimelineSvg, IdleLanesHaveOneRow) {
  const test::MadeUp made(2);
  std::vector<Trace> ranks = test::ranks_of(made.measured, 4, 0);
  TimelinePicture picture = picture_of(made);
  Trace alone = made.trace;
  const auto shorten = [&](Trace& trace) {
    for (Span& span : trace.spans) {
      if (trace.lanes[static_cast<std::size_t>(span.lane)] == "h2d.0") span.end = span.begin + 1;
    }
  };
  const auto rows = [&] {
    picture.measured = test::runs_of(made, ranks);
    const std::string svg = timeline_svg(picture);
    std::size_t found = 0;
    for (std::size_t at = svg.find(">rank 2<"); at != std::string::npos;
         at = svg.find(">rank 2<", at + 1)) {
      ++found;
    }
    return found;
  };
  const std::size_t before = rows();
  shorten(alone);
  for (Trace& rank : ranks) shorten(rank);
  picture.run.trace = &alone;
  EXPECT_EQ(rows() + 1, before);
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

// No text leaves the picture or touches another one, and each flag holds its text.
void expect_readable(const std::string& svg, double right = 1400) {
  const std::vector<Drawn> all = texts(svg);
  ASSERT_GT(all.size(), 20U);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Drawn& one = all[i];
    EXPECT_GE(one.left, 0) << one.text;
    EXPECT_LE(one.right, right) << one.text;
    for (std::size_t k = 0; k < i; ++k) {
      if (std::abs(all[k].y - one.y) >= 9) continue;
      EXPECT_FALSE(all[k].left < one.right && one.left < all[k].right)
          << all[k].text << " meets " << one.text;
    }
  }
  std::size_t flags = 0;
  const std::regex flag(
      "<rect x=\"([-.0-9]+)\" y=\"([-.0-9]+)\" width=\"([-.0-9]+)\" height=\"20\" "
      "fill=\"#1F2933\"/>");
  for (const std::smatch& found : elements(svg, "<rect ", "/>", flag)) {
    const double left = std::stod(found[1]), width = std::stod(found[3]);
    const double top = std::stod(found[2]);
    for (const Drawn& one : all) {
      if (one.style != "flag" || std::abs(one.y - top - 14) > 0.2) continue;
      ++flags;
      EXPECT_GE(one.left, left + 4) << one.text;
      EXPECT_LE(one.right, left + width - 4) << one.text;
    }
  }
  EXPECT_GE(flags, 2U);
}

TEST(TimelineSvg, TextsAreReadable) {
  for (const std::int64_t chunks : {1, 3, 8}) {
    const test::MadeUp made(chunks);
    TimelinePicture picture = picture_of(made);
    picture.zoom = middle_call(picture.run);
    picture.title =
        "llama3-70b, 524288 tokens on eight-machines-of-a-cluster: measured over predicted";
    picture.subtitle =
        "FPDT over 64 ranks: 128 chunks of 64K tokens; 80 layers repeat forward from their input; "
        "all chunks spilled to the host; one attention tile over all keys there; backward "
        "KV-outer; "
        "the optimizer on the host";
    // Budgets next to the arena and the peak, which are the hardest to label.
    for (const std::int64_t above : {0, 2000, 400000}) {
      picture.device_budget = arena_end(made.schedule, MemorySpace::device) + Bytes{above};
      picture.host_budget = arena_end(made.schedule, MemorySpace::host_pinned) + Bytes{above};
      picture.measured.clear();
      expect_readable(timeline_svg(picture));
      const std::vector<Trace> ranks = test::ranks_of(made.measured, 8, 5000);
      picture.measured = test::runs_of(made, ranks);
      expect_readable(timeline_svg(picture));
    }
  }
}

// A slide has the pixels that were asked for, and its drawing is narrower, so its text is larger.
TEST(TimelineSvg, SlidesFillTheirSize) {
  const test::MadeUp made(3);
  TimelinePicture picture = picture_of(made);
  picture.zoom = middle_call(picture.run);
  for (const auto& [width, height] : {std::pair(1920.0, 1080.0), std::pair(1280.0, 960.0)}) {
    const std::string svg = timeline_svg(picture, {width, height});
    EXPECT_EQ(test::xml_error(svg), "");
    std::smatch found;
    ASSERT_TRUE(std::regex_search(
        svg, found,
        std::regex("width=\"(\\d+)\" height=\"(\\d+)\" viewBox=\"0 0 (\\S+) (\\S+)\"")));
    EXPECT_EQ(std::stod(found[1]), width);
    EXPECT_EQ(std::stod(found[2]), height);
    EXPECT_LT(std::stod(found[3]), kPictureWidth);
    EXPECT_NEAR(std::stod(found[3]) / std::stod(found[4]), width / height, 0.01);
    expect_readable(svg, std::stod(found[3]));
    for (const Drawn& one : texts(svg)) EXPECT_LE(one.y, std::stod(found[4])) << one.text;
    EXPECT_FALSE(has(svg, "in detail"));
  }
  // A width alone scales everything.
  const std::string wide = timeline_svg(picture, {2800, 0});
  EXPECT_TRUE(has(wide, "width=\"2800\""));
  EXPECT_TRUE(has(wide, "viewBox=\"0 0 1400 "));
  EXPECT_TRUE(has(wide, "in detail"));
  EXPECT_THROW(timeline_svg(picture, {1920, 300}), InputError);
}

// Papers and inks of the dark are none of the light, and what has a meaning keeps its colour.
TEST(TimelineSvg, DarkKeepsTheColoursOfParts) {
  const test::MadeUp made(2);
  const TimelinePicture picture = picture_of(made);
  const std::string light = timeline_svg(picture);
  EXPECT_EQ(in_theme(light, Theme::light), light);
  const std::string dark = in_theme(light, Theme::dark);
  for (const std::string_view gone : {kInk, kSoftInk, kRule, kPaper, std::string_view("#FFFFFF")}) {
    EXPECT_TRUE(has(light, std::string(gone))) << gone;
    EXPECT_FALSE(has(dark, std::string(gone))) << gone;
  }
  for (const OpKind kind : {OpKind::attention_forward, OpKind::matmul, OpKind::fetch}) {
    EXPECT_TRUE(has(dark, std::string(color(kind)))) << word(kind);
  }
  const std::string page = in_theme(timeline_html(picture), Theme::dark);
  for (const char* gone : {"#ffffff", "#1f2933", "#f7f9fb"}) EXPECT_FALSE(has(page, gone)) << gone;
}

}  // namespace
}  // namespace fpdt
