// The dependency graph has every op once, and every edge joins ops of the graph.
#include "fpdt/report/dot.h"

#include <regex>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/report/palette.h"

#include "made_up.h"

namespace fpdt {
namespace {

// All matches of the first group of a pattern.
std::multiset<std::string> matches(const std::string& text, const std::string& pattern) {
  const std::regex expression(pattern);
  std::multiset<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), expression), end; it != end; ++it) {
    found.insert((*it)[1]);
  }
  return found;
}

TEST(Dot, AWholeStepHasEveryOpAndEdge) {
  const test::MadeUp made(2);
  const auto calls = static_cast<std::int32_t>(made.schedule.train.size());
  const std::string dot = dependency_dot(made.program, made.schedule.train, {0, calls});
  const auto nodes = matches(dot, R"(\n(c\d+_\d+) \[label=)");
  EXPECT_EQ(nodes.size(), made.trace.spans.size());
  EXPECT_EQ(std::set<std::string>(nodes.begin(), nodes.end()).size(), nodes.size());
  for (const std::string& end : matches(dot, R"(\n(c\d+_\d+) -> )")) {
    EXPECT_EQ(nodes.count(end), 1U) << end;
  }
  for (const std::string& end : matches(dot, R"( -> (c\d+_\d+)[; ])")) {
    EXPECT_EQ(nodes.count(end), 1U) << end;
  }
  // There is one solid edge for each entry of `after` whose call came before.
  Expansion expansion(made.program);
  std::size_t edges = 0;
  for (const Call& call : made.schedule.train) {
    expansion.begin(call);
    for (const PlainOp& op : made.program.blocks[static_cast<std::size_t>(call.block)].ops) {
      for (const After& after : op.after) edges += expansion.position(after) >= 0 ? 1U : 0U;
    }
  }
  EXPECT_GT(edges, 0U);
  EXPECT_EQ(matches(dot, R"((c\d+_\d+ -> c\d+_\d+);)").size(), edges);
  // One dashed edge between neighbours of a lane.
  EXPECT_EQ(matches(dot, R"((c\d+_\d+ -> c\d+_\d+) \[style=dashed)").size(),
            nodes.size() - made.program.lanes.size());
}

TEST(Dot, OneCallStandsAlone) {
  const test::MadeUp made(2);
  const CallRange range = middle_call(made.run());
  const std::string dot = dependency_dot(made.program, made.schedule.train, range);
  const std::string own = fmt::format("c{}_", range.first);
  for (const std::string& node : matches(dot, R"((c\d+_\d+))")) {
    EXPECT_EQ(node.substr(0, own.size()), own);
  }
  EXPECT_NE(dot.find(color(OpKind::attention_backward)), std::string::npos);
  EXPECT_EQ(dot, dependency_dot(made.program, made.schedule.train, range));
}

}  // namespace
}  // namespace fpdt
