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
  tile(schedule, "attn.1.2").q_first += 1;
  EXPECT_EQ(test::codes(schedule), Codes{"S502"});
}

TEST(Coverage, TilesMayBeOfAnyShape) {
  Schedule schedule = test::golden("fpdt_backward.json");
  for (Op& op : test::block_of(schedule, "backward").ops) {
    auto* body = std::get_if<AttentionBackward>(&op.body);
    if (body == nullptr) continue;
    body->q_first /= 2;
    body->q_rows /= 2;
    body->k_first /= 2;
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
