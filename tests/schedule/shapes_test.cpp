// S2xx: each kind of damage is found with exactly its code.
#include <gtest/gtest.h>

#include "fpdt/schedule/verify.h"

#include "golden.h"

namespace fpdt {
namespace {

using Codes = std::set<std::string>;

class Shapes : public testing::Test {
 protected:
  Schedule backward = test::golden("fpdt_backward.json");
  Schedule head = test::golden("tied_head.json");
};

TEST_F(Shapes, RowsLieInTheSlot) {
  Operand& q = test::body_of<AttentionBackward>(backward, "backward", "attn.0.0").q;
  q.row_first = 9;
  EXPECT_EQ(test::codes(backward), Codes{"S201"});
  q.row_first = 0;
  q.rows = 0;
  EXPECT_EQ(test::codes(backward), Codes{"S201"});
  q.rows = INT64_MAX;
  EXPECT_EQ(test::codes(backward), Codes{"S201"});
}

TEST_F(Shapes, ReadsHoldEnough) {
  test::body_of<AttentionBackward>(backward, "backward", "attn.0.0").q.rows = 7;
  EXPECT_EQ(test::codes(backward), Codes{"S202"});
}

TEST_F(Shapes, TargetsHoldExactly) {
  test::body_of<Matmul>(backward, "backward", "proj.0").m = 3;
  EXPECT_EQ(test::codes(backward), Codes{"S202"});
}

TEST_F(Shapes, CopiesHoldTheSame) {
  test::body_of<Copy>(backward, "backward", "spill.0").source.rows = 2;
  EXPECT_EQ(test::codes(backward), Codes{"S202"});
}

TEST_F(Shapes, TypesAreThoseOfTheOp) {
  test::buffer_of(backward, "lse_delta").dtype = Dtype::bf16;
  EXPECT_EQ(test::codes(backward), Codes{"S203"});
  test::buffer_of(head, "labels_host").dtype = Dtype::f32;
  EXPECT_EQ(test::codes(head), Codes{"S203"});
}

TEST_F(Shapes, CopiesBetweenSpacesRunOnCopyLanes) {
  for (Op& op : test::block_of(backward, "backward").ops) {
    if (op.lane.kind == LaneKind::h2d) op.lane = {LaneKind::compute, 1};
  }
  EXPECT_EQ(test::codes(backward), Codes{"S204"});
}

TEST_F(Shapes, OnlyCopiesTouchTheHost) {
  for (Buffer& buffer : head.buffers) {
    if (buffer.name != "norm") continue;
    buffer.space = MemorySpace::host;
    buffer.offset = 0;
  }
  EXPECT_EQ(test::codes(head), Codes{"S204"});
}

TEST_F(Shapes, ConstantsAreInRange) {
  test::body_of<AttentionBackward>(backward, "backward", "attn.0.0").scale = 0;
  EXPECT_EQ(test::codes(backward), Codes{"S205"});
  test::body_of<AdamW>(head, "end", "adamw").beta1 = 1;
  EXPECT_EQ(test::codes(head), Codes{"S205"});
}

TEST_F(Shapes, OptimizerReplacesInPlace) {
  test::body_of<AdamW>(head, "end", "adamw").m_out.operand.version.offset = 2;
  EXPECT_EQ(test::codes(head), Codes{"S205"});
}

TEST_F(Shapes, CollectivesFitTheirGroup) {
  backward.groups[0] = {"sp", 1, 1, {0, 1, 0, 1, 2}};
  EXPECT_EQ(test::codes(backward), Codes{"S206"}) << "an all-gather of one doubles nothing";
  head.groups[0] = {"world", 1, 1, {0, 1, 0, 1, 2}};
  EXPECT_EQ(test::codes(head), Codes{"S206"});
}

TEST_F(Shapes, OperandsArePresent) {
  test::body_of<Matmul>(head, "head", "logits.0.0").b = {};
  EXPECT_EQ(test::codes(head), Codes{"S207"});
}

}  // namespace
}  // namespace fpdt
