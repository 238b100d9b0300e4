// S5xx: attention tiles, heads and gradient chunks.
#include <gtest/gtest.h>

#include "fpdt/schedule/verify.h"

#include "golden.h"

namespace fpdt {
namespace {

using Codes = std::set<std::string>;

AttentionBackward& tile(Schedule& schedule, std::string_view op) {
  return test::body_of<AttentionBackward>(schedule, "backward", op);
}

TEST(Coverage, ATileTwiceOverlaps) {
  Schedule schedule = test::golden("fpdt_backward.json");
  tile(schedule, "attn.1.2").k_first = 0;
  const Codes found = test::codes(schedule);
  EXPECT_EQ(found, (Codes{"S501"})) << "the same area, but not the same pairs";
}

TEST(Coverage, AMissingTileLeavesPairs) {
  Schedule schedule = test::golden("fpdt_backward.json");
  tile(schedule, "attn.1.2").k_first = 24;
  EXPECT_EQ(test::codes(schedule), Codes{"S502"}) << "moved above the diagonal";
}

TEST(Coverage, AShortTileLeavesPairs) {
  Schedule schedule = test::golden("fpdt_backward.json");
  tile(schedule, "attn.1.2").q_first.a += 1;
  EXPECT_EQ(test::codes(schedule), Codes{"S502"});
}

TEST(Coverage, TilesMayBeOfAnyShape) {
  Schedule schedule = test::golden("fpdt_backward.json");
  for (Op& op : test::block_of(schedule, "backward").ops) {
    auto* body = std::get_if<AttentionBackward>(&op.body);
    if (body == nullptr) continue;
    body->q_first.a /= 2;
    body->q_rows /= 2;
    body->k_first.a /= 2;
    body->k_rows /= 2;
    body->q.rows = body->dout.rows = 4;
    body->dout.row_first = 8;
  }
  const Codes found = test::codes(schedule);
  EXPECT_EQ(found.count("S501") + found.count("S502"), 0u) << "half of everything covers half";
}

TEST(Coverage, HeadsAreTheSameForAllTiles) {
  Schedule schedule = test::golden("fpdt_backward.json");
  tile(schedule, "attn.1.2").head_first = {0};
  EXPECT_EQ(test::codes(schedule), Codes{"S503"});
}

TEST(Coverage, RanksHoldAllHeads) {
  Schedule schedule = test::golden("fpdt_backward.json");
  for (Op& op : test::block_of(schedule, "backward").ops) {
    if (auto* body = std::get_if<AttentionBackward>(&op.body)) body->head_first.first.b = 2;
  }
  EXPECT_EQ(test::codes(schedule), Codes{"S503"});
}

// The findings of this file. The tiles of the tests below keep the buffers of other shapes.
Codes coverage_codes(const Schedule& schedule) {
  Codes found = test::codes(schedule);
  std::erase_if(found, [](const std::string& code) { return !code.starts_with("S50"); });
  return found;
}

// Each of two ranks has all heads, and half of the queries of every tile.
Schedule with_shared_queries() {
  Schedule schedule = test::golden("fpdt_backward.json");
  for (Op& op : test::block_of(schedule, "backward").ops) {
    auto* body = std::get_if<AttentionBackward>(&op.body);
    if (body == nullptr) continue;
    body->head_first = 0;
    body->q_rows /= 2;
    body->q_first.first = {.b = body->q_rows, .n = 2};
  }
  return schedule;
}

TEST(Coverage, RanksMayShareQueries) { EXPECT_EQ(coverage_codes(with_shared_queries()), Codes{}); }

TEST(Coverage, ATileOfTwoRanksIsNotOfOneReplica) {
  Schedule schedule = with_shared_queries();
  tile(schedule, "attn.1.2").q_first.first = {};
  EXPECT_EQ(coverage_codes(schedule), Codes{"S507"});
}

TEST(Coverage, RanksMustNotShareATile) {
  Schedule schedule = with_shared_queries();
  tile(schedule, "attn.1.2").k_first = 0;
  EXPECT_EQ(coverage_codes(schedule), Codes{"S507"}) << "both ranks compute two tiles twice";
  tile(schedule, "attn.1.2").k_first = 4;
  EXPECT_EQ(coverage_codes(schedule), (Codes{"S501"})) << "the same area, but not the same pairs";
}

TEST(Coverage, EveryRankHasItsPartOfATile) {
  Schedule schedule = with_shared_queries();
  tile(schedule, "attn.1.2").q_first.a = 0;
  tile(schedule, "attn.1.2").q_first.first = {.b = 24, .n = 2};
  const Codes found = coverage_codes(schedule);
  EXPECT_TRUE(found.contains("S502")) << "rank 0 computes nothing of it";
}

TEST(Coverage, HeadsOfRanksFollowEachOther) {
  Schedule schedule = with_shared_queries();
  for (Op& op : test::block_of(schedule, "backward").ops) {
    if (auto* body = std::get_if<AttentionBackward>(&op.body)) body->head_first = 1;
  }
  EXPECT_EQ(coverage_codes(schedule), Codes{"S503"});
}

// Keys of a later rank lie above the diagonal of an earlier one, which computes nothing of them.
TEST(Coverage, ContiguousRanksLeaveTilesOut) {
  Schedule schedule = test::golden("fpdt_backward.json");
  for (Op& op : test::block_of(schedule, "backward").ops) {
    auto* body = std::get_if<AttentionBackward>(&op.body);
    if (body == nullptr) continue;
    body->head_first = 0;
    body->q_rows = body->k_rows = 8;
    body->q_first = 0;
    body->q_first.first = {.b = 8, .n = 2};
    const bool used = op.name == "attn.0.0" || op.name == "attn.0.1";
    body->k_first = used ? 8 * (op.name.back() - '0') : 16;
  }
  EXPECT_EQ(coverage_codes(schedule), Codes{});
  tile(schedule, "attn.0.1").k_first.first = {.b = 8, .n = 2};
  EXPECT_EQ(coverage_codes(schedule), Codes{"S502"}) << "rank 1 leaves out its diagonal";
}

TEST(Coverage, GradientChunksOverlap) {
  Schedule schedule = test::golden("tied_head.json");
  test::body_of<Matmul>(schedule, "head", "dtable.1.0").local_first = 2;
  EXPECT_EQ(test::codes(schedule), (Codes{"S504", "S505"})) << "two rows twice, two rows never";
}

TEST(Coverage, AMissingGradientChunkLeavesAGap) {
  Schedule schedule = test::golden("tied_head.json");
  test::body_of<Matmul>(schedule, "head", "dtable.1.0").local_first = -1;
  EXPECT_EQ(test::codes(schedule), (Codes{"S505", "S605"}));
}

TEST(Coverage, GradientsOfABlockEndTogether) {
  Schedule schedule = test::golden("tied_head.json");
  test::body_of<Matmul>(schedule, "head", "dtable.2.0").local_first = -1;
  EXPECT_EQ(test::codes(schedule), (Codes{"S506", "S605"}));
}

}  // namespace
}  // namespace fpdt
