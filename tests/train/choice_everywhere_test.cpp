// A choice that is added to a copy of the table is seen by everything that visits the table.
#include <gmock/gmock.h>

#include <gtest/gtest.h>

#include "fpdt/check/bisect.h"
#include "fpdt/io/strategy_file.h"
#include "fpdt/plan/search/ladder.h"
#include "fpdt/plan/search/levers.h"

#include "../io/key_rows.h"
#include "problems.h"

namespace fpdt::test {
namespace {

using testing::Contains;
using testing::HasSubstr;

// Micro-batches once more, under another key, as a choice of their own.
std::vector<Choice> table_with_one_more() {
  std::vector<Choice> table = choices();
  const auto tiles = std::find_if(table.begin(), table.end(),
                                  [](const Choice& one) { return one.key == "tiles.ffn_rows"; });
  table.insert(
      tiles, {.key = "tiles.sequences",
              .meaning = "sequences, one after the other",
              .member = [](Strategy& s, LayerClass&) { return Member(&s.micro_batches); },
              .turn = 1,
              .others =
                  [](const Problem&, const Strategy& s, const Fits&) {
                    Strategy twice = s;
                    twice.micro_batches *= 2;
                    return std::vector<Strategy>{twice};
                  },
              .words = [](const Problem&, const Strategy& s,
                          const Geometry&) { return fmt::format("{} sequences", s.micro_batches); },
              .simplest = "one sequence",
              .simplify = [](Problem&, Strategy& s) { s.micro_batches = 1; },
              .unused =
                  [](const Problem&, const Strategy& s, const LayerClass&, const Geometry&) {
                    return std::string(s.micro_batches == 7 ? "seven is too many" : "");
                  }});
  return table;
}

class ChoiceEverywhere : public testing::Test {
 protected:
  ChoiceEverywhere() {
    problem_.device_budget = problem_.host_budget = problem_.cluster.device_memory;
    strategy_.micro_batches = 3;
  }

  const std::vector<Choice> table_ = table_with_one_more();
  Problem problem_ = timed_problem(tiny_llama(), 2, 256);
  Strategy strategy_ = spilled(problem_, 1, 64);
};

TEST_F(ChoiceEverywhere, InFiles) {
  const std::string text = print_strategy(strategy_, table_);
  EXPECT_THAT(text, HasSubstr("  sequences: 3\n  ffn_rows"));
  EXPECT_THAT(print_strategy(strategy_), testing::Not(HasSubstr("sequences")));
  const std::string seven = "tiles: {sequences: 7}\n";
  EXPECT_EQ(parse_strategy(seven, "seven.yaml", table_).micro_batches, 7);
  EXPECT_THROW(parse_strategy(seven, "seven.yaml"), InputError);
}

TEST_F(ChoiceEverywhere, OnTheReferencePage) {
  std::vector<std::string> rows;
  KeyRows lister(rows);
  Strategy usual;
  describe_choices(usual, table_, lister);
  EXPECT_THAT(rows,
              Contains("| `tiles.sequences` | integer | 1 | sequences, one after the other |"));
}

TEST_F(ChoiceEverywhere, AsALever) {
  const std::vector<Lever> all = levers(table_);
  ASSERT_EQ(all.size(), levers().size() + 1);
  EXPECT_EQ(all[1].name, "sequences");  // by its turn
  const std::vector<Change> changes = all[1].changes(problem_, strategy_);
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes.front().words, "sequences 3 -> 6");
  EXPECT_EQ(changes.front().strategy.micro_batches, 6);
}

TEST_F(ChoiceEverywhere, AsARung) {
  Strategy from = strategy_;
  from.micro_batches = 1;
  const std::vector<Rung> rungs = ladder(problem_, from, strategy_, {}, table_);
  ASSERT_GE(rungs.size(), 2U);
  EXPECT_EQ(rungs.back().strategy, strategy_);
  std::vector<std::string> words;
  for (const Rung& rung : rungs) words.push_back(rung.lever);
  EXPECT_THAT(words, Contains("sequences 1 -> 3"));
}

TEST_F(ChoiceEverywhere, InWords) {
  EXPECT_THAT(in_words(problem_, strategy_, table_), HasSubstr("; 3 sequences"));
}

TEST_F(ChoiceEverywhere, InABisection) {
  std::vector<std::string> changes;
  for (const Simplification& one : simplifications(problem_, strategy_, table_)) {
    changes.push_back(one.change);
  }
  EXPECT_THAT(changes, Contains("one sequence"));
}

TEST_F(ChoiceEverywhere, WhereItHasNoEffect) {
  strategy_.micro_batches = 7;
  EXPECT_THAT(without_effect(problem_, strategy_, table_),
              Contains("tiles.sequences has no effect: seven is too many"));
  EXPECT_EQ(canonical(problem_, strategy_, table_).micro_batches, 1);
  EXPECT_EQ(canonical(problem_, strategy_).micro_batches, 7);
}

}  // namespace
}  // namespace fpdt::test
