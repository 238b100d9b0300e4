// Each lever changes one thing and keeps the strategy sound.
#include "fpdt/plan/search/levers.h"

#include <regex>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fpdt/plan/fit.h"
#include "fpdt/plan/methods/method.h"

#include "problems.h"

namespace fpdt::test {
namespace {

Problem question() {
  Problem problem = tiny_problem(tiny_llama(), 2, 256);
  problem.device_budget = problem.host_budget = problem.cluster.device_memory;
  return problem;
}

TEST(Levers, EveryChangeIsSoundNewAndNamed) {
  const Problem problem = question();
  const Strategy from = spilled(problem, 1, 64);
  std::set<std::string> names;
  std::size_t changes = 0;
  for (const Lever& lever : levers()) {
    EXPECT_TRUE(names.insert(lever.name).second);
    for (const Change& change : lever.changes(problem, from)) {
      EXPECT_TRUE(check(problem, change.strategy).empty()) << change.words;
      EXPECT_FALSE(change.strategy == from) << change.words;
      EXPECT_FALSE(change.words.empty());
      EXPECT_EQ(canonical(problem, change.strategy), change.strategy) << change.words;
      ++changes;
    }
  }
  EXPECT_GT(changes, 30U);
}

// Where layers differ, in segments and in what they store, a change still says what becomes what.
TEST(Levers, ChangesSayWhatBecomesWhat) {
  Problem problem = question();
  problem.model.layers = 9;
  const std::regex nothing(R"((^| )(\S+) -> \2(,| |$))");
  std::size_t changes = 0;
  for (const std::vector<std::int64_t>& segments :
       {std::vector<std::int64_t>{1}, {2, 2, 1}, {4, 3, 2}}) {
    Strategy from = spilled(problem, 1, 32);
    from.segments = segments;
    for (const std::int64_t layers : {2, 9}) {
      const Strategy mixed = with_stored_from(problem, from, {3, layers});
      for (const Lever& lever : levers()) {
        for (const Change& change : lever.changes(problem, mixed)) {
          EXPECT_FALSE(change.words.empty()) << lever.name;
          EXPECT_FALSE(std::regex_search(change.words, nothing)) << change.words;
          ++changes;
        }
      }
    }
  }
  EXPECT_GT(changes, 200U);
}

// For levers that are flags, one value undoes another. What fits is solved for, so those that do
// may come back with more.
TEST(Levers, FlagsGoBack) {
  const Problem problem = question();
  const Strategy from = spilled(problem, 1, 64);
  for (const Lever& lever : levers()) {
    const std::vector<Change> there = lever.changes(problem, from);
    const bool solved = lever.name.starts_with("keep") || lever.name == "segments";
    if (there.size() != 1 || solved) continue;
    bool back = false;
    for (const Change& change : lever.changes(problem, there.front().strategy)) {
      back = back || change.strategy == from;
    }
    EXPECT_TRUE(back) << lever.name;
  }
}

// If all layers store their attention output, some or all of them may store everything instead.
TEST(Levers, LayersThatStoreAttentionMayStoreEverything) {
  const Problem problem = question();
  const std::int64_t layers = problem.model.layers;
  const Strategy from = with_stored(problem, spilled(problem, 1, 64), {0, layers});
  std::set<std::int64_t> everything;
  for (const Lever& lever : levers()) {
    if (lever.name != "recompute everything") continue;
    for (const Change& change : lever.changes(problem, from)) {
      const StoredLayers stored = stored_layers(problem, change.strategy);
      EXPECT_EQ(stored.everything + stored.attention, layers) << change.words;
      everything.insert(stored.everything);
    }
  }
  EXPECT_EQ(everything, (std::set<std::int64_t>{1, layers}));
}

// Layers that store attention outputs may store those of fewer chunks.
TEST(Levers, OutputsMayBeStoredFromAChunkOn) {
  const Problem problem = question();
  const Strategy input = spilled(problem, 1, 64);
  const Strategy output = with_stored(problem, input, {0, problem.model.layers});
  for (const Lever& lever : levers()) {
    if (lever.name != "first_stored_chunk") continue;
    EXPECT_TRUE(lever.changes(problem, input).empty());
    const std::vector<Change> changes = lever.changes(problem, output);
    ASSERT_EQ(changes.size(), 2U);  // of four chunks: one, and half of them
    EXPECT_EQ(changes[0].words, "first_stored_chunk 0 -> 1");
    EXPECT_LT(usage(problem, changes[1].strategy).host_rank, usage(problem, output).host_rank);
  }
}

TEST(Levers, WordsSayWhatIsStoredAndWhere) {
  const Problem problem = question();
  Strategy strategy = with_stored(problem, spilled(problem, 1, 64), {0, 1});
  const std::string text = in_words(problem, with_kept(strategy, TensorClass::kv, 1));
  EXPECT_NE(text.find("FPDT over 2 ranks: 4 chunks of 64 tokens"), std::string::npos) << text;
  EXPECT_NE(text.find("1 layer stores its attention output"), std::string::npos) << text;
  EXPECT_NE(text.find("on the device: kv"), std::string::npos) << text;
  strategy.layer_classes.front().first_stored_chunk = 2;
  EXPECT_NE(in_words(problem, strategy).find("attention of the first 2 chunks is repeated"),
            std::string::npos);
  strategy = with_first_stored(with_stored(problem, spilled(problem, 1, 64), {0, 2}), 4);
  strategy.segments = {2};
  EXPECT_NE(in_words(problem, strategy).find("2 layers repeat all their attention once"),
            std::string::npos);
  EXPECT_EQ(in_words(problem, strategy).find("is repeated"), std::string::npos);
  // Layer classes may differ, chunks need not divide the sequence, and replicas train in turn.
  strategy = with_stored(problem, spilled(problem, 1, 96), {0, 1});
  strategy.layer_classes.front().first_stored_chunk = 1;
  strategy.layer_classes.back().recompute = Recompute::keep_attention;
  strategy.layer_classes.back().keep[static_cast<std::size_t>(TensorClass::lse)] = 1.0 / 3;
  strategy.micro_batches = 3;
  const std::string mixed = in_words(problem, strategy);
  EXPECT_NE(mixed.find("3 chunks of up to 96 tokens, 3 micro-batches;"), std::string::npos)
      << mixed;
  EXPECT_NE(mixed.find("attention of the first 0 to 1 chunks is repeated"), std::string::npos)
      << mixed;
  EXPECT_NE(mixed.find("on the device: lse (0 to 33 %)"), std::string::npos) << mixed;
  const Strategy one_chunk = spilled(problem, 1, 256);
  EXPECT_NE(in_words(problem, one_chunk).find("mesh 1 x 2 (replicas x heads): one chunk"),
            std::string::npos);
  const Strategy kept = method_named("ulysses")->entered(problem, one_chunk);
  EXPECT_NE(in_words(problem, kept).find("Ulysses over 2 ranks"), std::string::npos);
}

}  // namespace
}  // namespace fpdt::test
