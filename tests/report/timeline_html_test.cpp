// The HTML timeline is one file; its JSON holds every op and every change.
#include "fpdt/report/timeline_html.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "fpdt/cost/demand.h"

#include "made_up.h"

namespace fpdt {
namespace {

using Json = nlohmann::json;

// The text between the first `begin` and the next `end`.
std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const std::size_t at = text.find(begin);
  if (at == std::string::npos) return "";
  const std::size_t from = at + begin.size();
  return text.substr(from, text.find(end, from) - from);
}

Json data_of(const std::string& html) {
  return Json::parse(between(html, "<script id=\"data\" type=\"application/json\">", "</script>"));
}

TEST(TimelineHtml, NeedsNothingElse) {
  const test::MadeUp made(2);
  const std::string html = timeline_html({made.run(), "</script><b>", "a & b", {}, {}, {}, {}});
  for (const char* outside : {"http://", "https://", "src=", "@import", "url("}) {
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
  }
  EXPECT_NE(html.find("<title>&lt;/script&gt;&lt;b&gt;</title>"), std::string::npos);
}

TEST(TimelineHtml, HoldsEveryOpAndChange) {
  const test::MadeUp made(3);
  TimelinePicture picture{made.run(), "t", "", Bytes{5}, Bytes{7}, {}, {made.second()}};
  picture.outside = Bytes{2};
  const std::string html = timeline_html(picture);
  const Json data = data_of(html);
  EXPECT_EQ(data["budget"], (Json{{{"name", "budget less outside"}, {"bytes", 3}},
                                  {{"name", "budget"}, {"bytes", 7}}}));
  EXPECT_EQ(data["buffers"].size(), made.schedule.buffers.size());
  EXPECT_EQ(data["calls"].size(), made.schedule.train.size());
  ASSERT_EQ(data["traces"].size(), 2U);
  EXPECT_EQ(data["traces"][1]["label"], "measured");
  const Json& trace = data["traces"][0];
  ASSERT_EQ(trace["times"].size(), 2 * made.trace.spans.size());
  // Adding up the times gives the spans.
  std::vector<std::int64_t> end(made.trace.lanes.size(), 0);
  for (std::size_t i = 0; i < made.trace.spans.size(); ++i) {
    const Span& span = made.trace.spans[i];
    std::int64_t& lane = end[static_cast<std::size_t>(span.lane)];
    EXPECT_EQ(lane + trace["times"][2 * i].get<std::int64_t>(), span.begin);
    lane = span.begin + trace["times"][2 * i + 1].get<std::int64_t>();
    EXPECT_EQ(lane, span.end);
  }
  // Every slot that becomes live becomes free.
  for (const Json& changes : trace["changes"]) {
    std::int64_t sum = 0;
    for (std::size_t i = 1; i < changes.size(); i += 2) sum += changes[i].get<std::int64_t>();
    EXPECT_EQ(sum, 0);
  }
  EXPECT_EQ(html, timeline_html(picture));
}

TEST(TimelineHtml, HoldsAllRanksOnOneClock) {
  const test::MadeUp made(2);
  constexpr std::int64_t kApart = 1'000'000;
  const std::vector<Trace> ranks = test::ranks_of(made.measured, 3, kApart);
  const Json data =
      data_of(timeline_html({made.run(), "t", "", {}, {}, {}, test::runs_of(made, ranks)}));
  ASSERT_EQ(data["traces"].size(), 4U);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const Json& trace = data["traces"][rank + 1];
    const auto shift = static_cast<std::int64_t>(rank) * kApart;
    EXPECT_EQ(trace["label"], "rank " + std::to_string(rank));
    EXPECT_EQ(trace["begin"], shift);
    EXPECT_EQ(trace["end"], duration(made.measured) + shift);
    EXPECT_EQ(trace["times"][0], made.measured.spans.front().begin + shift);
  }
  // All are equally full, so the first has the line, with its changes.
  EXPECT_EQ(data["lines"], (Json{1, 1}));
  EXPECT_FALSE(data["traces"][1]["changes"][0].empty());
  EXPECT_TRUE(data["traces"][2]["changes"][0].empty());
}

// A tile that sees other keys on another rank has the flops of that rank in its row.
TEST(TimelineHtml, HoldsWhatDiffersBetweenRanks) {
  test::MadeUp made(2);
  Json expected;
  for (std::size_t b = 0; b < made.schedule.blocks.size(); ++b) {
    std::vector<Op>& ops = made.schedule.blocks[b].ops;
    for (std::size_t i = 0; i < ops.size() && expected.empty(); ++i) {
      auto* tile = std::get_if<AttentionForward>(&ops[i].body);
      if (tile == nullptr) continue;
      tile->q_first.first = {.b = tile->q_rows / 2, .n = 2};
      const Demand one = demand(made.schedule, ops[i], 1);
      ASSERT_NE(one.flops, demand(made.schedule, ops[i], 0).flops);
      expected = Json::array({b, i, one.flops, one.bytes + one.partial});
    }
  }
  const std::vector<Trace> ranks = test::ranks_of(made.measured, 2, 0);
  const Json data =
      data_of(timeline_html({made.run(), "t", "", {}, {}, {}, test::runs_of(made, ranks)}));
  EXPECT_EQ(data["traces"][0]["amounts"], Json::array());
  EXPECT_EQ(data["traces"][1]["amounts"], Json::array());
  EXPECT_EQ(data["traces"][2]["amounts"], Json::array({expected}));
}

// A page that holds a part of the ops has the sums, shares and peaks of all.
TEST(TimelineHtml, OpsThatAreLeftOutStillCount) {
  const test::MadeUp made(3);
  TimelinePicture picture{made.run(), "t", "", {}, {}, {}, {made.second()}};
  const std::string all = timeline_html(picture);
  picture.holds = [](std::size_t call) { return call % 5 == 1; };
  const std::string some = timeline_html(picture);
  const Json data = data_of(some);
  EXPECT_LT(data["traces"][0]["times"].size(), made.trace.spans.size());
  EXPECT_EQ(data["traces"][0]["calls"][0], (Json{1, 2}));
  for (const char* same : {"sums", "bars", "peaks", "lines"}) {
    EXPECT_EQ(data[same], data_of(all)[same]) << same;
  }
  std::size_t run = 0;
  for (const Trace* trace : {&made.trace, &made.measured}) {
    const Json& held = data["traces"][run++];
    EXPECT_FALSE(held.contains("changes"));
    EXPECT_EQ(held["end"], duration(*trace));
    for (std::size_t lane = 0; lane < trace->lanes.size(); ++lane) {
      std::int64_t sum = 0;
      const Json& shares = held["shares"][lane];
      for (std::size_t i = 2; i < shares.size(); i += 3) sum += shares[i].get<std::int64_t>();
      EXPECT_EQ(sum, busy(*trace, static_cast<std::int32_t>(lane)));
    }
    const Live live = find_live({&made.program, &made.schedule.train, trace});
    for (const MemorySpace space : {MemorySpace::device, MemorySpace::host_pinned}) {
      const Json& levels = held["levels"][static_cast<std::size_t>(space)];
      std::int64_t most = 0;
      std::int64_t last = -1;
      const std::size_t categories = data["categories"].size();
      EXPECT_GT(categories, kParts);  // and tints of activations
      for (std::size_t i = 0; i < levels.size(); i += 1 + categories) {
        std::int64_t sum = 0;
        for (std::size_t k = 1; k <= categories; ++k) sum += levels[i + k].get<std::int64_t>();
        most = std::max(most, sum);
        EXPECT_GT(levels[i], last);
        last = levels[i];
      }
      EXPECT_EQ(most, find_peak(live, space).bytes.value);
    }
  }
  EXPECT_NE(some.find("Hatched: only averages are held"), std::string::npos);
  EXPECT_EQ(all.find("Hatched: only averages are held"), std::string::npos);
}

TEST(TimelineHtml, SomeCallsAreRanges) {
  const test::MadeUp made(2);
  Trace part = test::cut(made.trace, 3, 6);
  const Trace later = test::cut(made.trace, 8, 9);
  part.spans.insert(part.spans.end(), later.spans.begin(), later.spans.end());
  TracedRun run = made.run();
  run.trace = &part;
  const Json data = data_of(timeline_html({run, "t", "", {}, {}, {}, {}}));
  EXPECT_EQ(data["traces"][0]["calls"], Json::parse("[[3,6],[8,9]]"));
}

}  // namespace
}  // namespace fpdt
