// The chunk-interleaved layout and its padding.
#include "fpdt/train/inputs.h"

#include <gmock/gmock.h>
#include <variant>

#include <gtest/gtest.h>

#include "fpdt/base/error.h"

#include "cases.h"

namespace fpdt {
namespace {

using Row = std::vector<std::int32_t>;

Sample counting_tokens(std::int32_t length) {
  Sample sample;
  for (std::int32_t t = 0; t < length; ++t) {
    sample.tokens.push_back(t);
    sample.labels.push_back(100 + t);
    sample.documents.push_back(t < 5 ? 0 : 5);
  }
  return sample;
}

TokenLayout layout_of(const Case& one) {
  return TokenLayout(lower(one.problem, one.strategy).schedule.schedule());
}

TEST(Inputs, EachRankHoldsItsPartOfEachChunk) {
  const Case one = make_case(tiny_llama(), 2, 12, 8);
  const TokenLayout shape = layout_of(one);
  EXPECT_EQ(rank_inputs(shape, 0, counting_tokens(12)).tokens, (Row{0, 1, 2, 3, 8, 9}));
  EXPECT_EQ(rank_inputs(shape, 1, counting_tokens(12)).labels, (Row{104, 105, 106, 107, 110, 111}));
  EXPECT_EQ(rank_inputs(shape, 1, counting_tokens(12)).documents, counting_tokens(12).documents);
}

TEST(Inputs, PaddingIsMaskedAndEachADocumentOfItsOwn) {
  const Case one = make_case(tiny_llama(), 4, 10, 8);
  const TokenLayout shape = layout_of(one);
  ASSERT_EQ(shape.sequence_tokens(), 12);
  const RankInputs last = rank_inputs(shape, 3, counting_tokens(10));
  EXPECT_EQ(last.tokens, (Row{6, 7, 0}));
  EXPECT_EQ(last.labels, (Row{106, 107, -1}));
  EXPECT_EQ(last.documents, (Row{0, 0, 0, 0, 0, 5, 5, 5, 5, 5, 10, 11}));
}

// The chunk-interleaved layout of Yao et al.: after the all-to-all, chunk j is tokens [4j, 4j + 4)
// in order.
TEST(TokenLayout, InterleavesChunks) {
  const TokenLayout layout = layout_of(make_case(tiny_llama(), 2, 16, 4));
  std::vector<std::int64_t> firsts;
  for (const TokenRun& run : layout.of(1)) {
    EXPECT_EQ(run.count, 2);
    firsts.push_back(run.token);
  }
  EXPECT_EQ(firsts, (std::vector<std::int64_t>{2, 6, 10, 14}));
}

TEST(TokenLayout, EachReplicaHoldsASequence) {
  Case one = make_case(tiny_llama(), 4, 12, 8);
  one.strategy.mesh.replicas = 2;
  one.strategy.micro_batches = 3;
  const TokenLayout layout = layout_of(one);
  EXPECT_EQ(layout.sequences(), 6);
  EXPECT_EQ(layout.sequence_tokens(), 12);
  for (const std::int64_t rank : {0, 1, 2, 3}) EXPECT_EQ(layout.replica_of(rank), rank / 2);
  EXPECT_EQ(layout.first_rank(1), 2);
}

// A file of format 2 has no feeds: what its embedding reads says which tokens a rank holds.
TEST(TokenLayout, OldFilesSayTheSame) {
  for (const std::int64_t replicas : {1, 2}) {
    Case one = make_case(tiny_llama(), 4, 18, 8);
    one.strategy.mesh.replicas = replicas;
    Schedule schedule = lower(one.problem, one.strategy).schedule.schedule();
    const TokenLayout layout(schedule);
    schedule.feeds.clear();
    const TokenLayout old(schedule);
    EXPECT_EQ(old.replicas(), replicas);
    for (std::int64_t rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(old.replica_of(rank), layout.replica_of(rank));
      EXPECT_EQ(rank_inputs(old, rank, counting_tokens(18)).labels,
                rank_inputs(layout, rank, counting_tokens(18)).labels);
    }
  }
}

// Lowers a case, applies a change to each embedding, and expects R106, with feeds and without.
template <class Change>
void expect_refused(Change&& change, bool with_feeds = true) {
  if (with_feeds) expect_refused(change, false);
  const Case one = make_case(tiny_llama(), 2, 16, 4);
  Schedule schedule = lower(one.problem, one.strategy).schedule.schedule();
  if (!with_feeds) schedule.feeds.clear();
  for (Block& block : schedule.blocks) {
    for (Op& op : block.ops) {
      if (auto* const embed = std::get_if<Embedding>(&op.body)) change(*embed);
    }
  }
  try {
    static_cast<void>(TokenLayout(schedule));
    FAIL() << "not refused";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("R106"));
  }
}

TEST(TokenLayout, RefusesTokensThatAreNotHeldOnce) {
  expect_refused([](Embedding& embed) { embed.tokens.row_first = 0; });
  expect_refused([](Embedding& embed) { embed.token_first = {}; });
  expect_refused([](Embedding& embed) { embed.token_first.a += 1; });
}

}  // namespace
}  // namespace fpdt
