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

// The triangle of the ranks together, where positions depend on the rank.
class CoverageOfRanks : public testing::Test {
 protected:
  Schedule ring = test::golden("zigzag_ring_2.json");
  Schedule gathered = test::golden("lss_2.json");

  AttentionForward& forward(std::string_view op) {
    return test::body_of<AttentionForward>(ring, "forward", op);
  }
};

TEST_F(CoverageOfRanks, ATileOfAnotherRankOverlaps) {
  forward("attn_next.1.0").k_first = forward("attn.1.0").k_first;
  EXPECT_EQ(test::codes(ring), (Codes{"S501"})) << "as many pairs, but own keys twice";
}

TEST_F(CoverageOfRanks, AHopTheOtherWayIsFound) {
  // Rank 0 sees keys of rank 0, and rank 1 those after the sequence.
  forward("attn_next.0.0").k_first = RankExpression{0, {4, 0, 1, 2}};
  EXPECT_EQ(test::codes(ring).count("S501"), 1U);
}

TEST_F(CoverageOfRanks, AShortTileLeavesPairs) {
  forward("attn_next.1.1").q_first.a += 1;
  EXPECT_EQ(test::codes(ring).count("S502"), 1U);
  test::body_of<AttentionBackward>(gathered, "backward", "dattn").k_first = 1;
  EXPECT_EQ(test::codes(gathered), Codes{"S502"});
}

TEST_F(CoverageOfRanks, ReplicasDoNotShareTheirTriangles) {
  // Two pairs of ranks instead of one: the same program, and each replica has its own sequence.
  gathered.ranks = 4;
  gathered.groups[0].first = RankExpression{0, {2, 0, 2, 2}};
  const RankExpression first{0, {8, 0, 1, 2}};
  for (Block& block : gathered.blocks) {
    for (Op& op : block.ops) {
      if (auto* tile = std::get_if<AttentionForward>(&op.body)) tile->q_first = first;
      if (auto* tile = std::get_if<AttentionBackward>(&op.body)) tile->q_first = first;
      if (auto* split = std::get_if<SplitHeads>(&op.body)) split->token_first = first;
      if (auto* join = std::get_if<JoinHeads>(&op.body)) join->token_first = first;
    }
  }
  for (Feed& feed : gathered.feeds) {
    feed.replica = RankExpression{0, {1, 0, 2, 2}};
    if (feed.holds == Holds::tokens) feed.first = first;
  }
  EXPECT_EQ(test::codes(gathered), Codes{});
  for (Feed& feed : gathered.feeds) feed.replica = {};
  EXPECT_EQ(test::codes(gathered), (Codes{"S501", "S502", "S607"}));
}

TEST_F(CoverageOfRanks, HeadsOfAReplicaAreWhole) {
  for (const char* op :
       {"attn.0.0", "attn.1.0", "attn.1.1", "attn_next.0.0", "attn_next.1.0", "attn_next.1.1"}) {
    forward(op).head_first = 2;
  }
  EXPECT_EQ(test::codes(ring), Codes{"S503"});
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
