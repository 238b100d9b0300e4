// S2xx: each kind of damage gives exactly its code.
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

// Kernels look up positions from the first token on, so it must be in the sequence on every rank.
TEST_F(Shapes, TokensAreOfTheSequenceOnEveryRank) {
  RankExpression& first = test::body_of<Embedding>(head, "head", "embed.0").token_first;
  const RankExpression whole = first;
  for (const RankExpression& wrong :
       {RankExpression{-1}, RankExpression{4, {-8, 0, 1, 2}}, RankExpression{INT32_MAX - 3},
        RankExpression{0, {-4, 1, 1, 2}}}) {
    first = wrong;
    EXPECT_EQ(test::codes(head), Codes{"S205"}) << wrong.a << " " << wrong.first.b;
  }
  first = whole;
  EXPECT_EQ(test::codes(head), Codes{});
}

TEST_F(Shapes, TablesHoldWhatTokensMaySay) {
  Embedding& embed = test::body_of<Embedding>(head, "head", "embed.0");
  embed.vocabulary = 17;
  EXPECT_EQ(test::codes(head), Codes{"S202"});
  embed.vocabulary = 0;
  EXPECT_EQ(test::codes(head), Codes{"S205"});
  embed.vocabulary = 16;
  EmbeddingBackward& back = test::body_of<EmbeddingBackward>(head, "head", "embed_backward.0");
  back.vocabulary = 17;
  EXPECT_EQ(test::codes(head), Codes{"S202"});
  back.vocabulary = 16;
  // Each rank has 4 tokens from 4*r on, so positions go up to 7.
  embed.positions = embed.table;
  embed.position_count = 7;
  EXPECT_EQ(test::codes(head), Codes{"S205"});
  embed.position_count = 8;
  EXPECT_EQ(test::codes(head), Codes{});
  embed.position_count = 17;
  EXPECT_EQ(test::codes(head), Codes{"S202"});
}

TEST_F(Shapes, HeadsAreNoLargerThanKernelsServe) {
  test::body_of<AttentionBackward>(backward, "backward", "attn.0.0").head_dim = 513;
  EXPECT_EQ(test::codes(backward).count("S205"), 1U);
}

TEST_F(Shapes, TilesThatAWindowCutsAreNotForLibraries) {
  for (Op& op : test::block_of(backward, "backward").ops) {
    if (auto* tile = std::get_if<AttentionBackward>(&op.body)) tile->window = 1 << 20;
  }
  EXPECT_EQ(test::codes(backward), Codes{}) << "the window is longer than the sequence";
  AttentionBackward& tile = test::body_of<AttentionBackward>(backward, "backward", "attn.0.1");
  tile.window = -1;
  EXPECT_EQ(test::codes(backward), Codes{"S205"});
  tile.workspace = tile.lse;
  tile.window = 1 << 20;
  EXPECT_EQ(test::codes(backward).count("S205"), 0U);
  const std::int64_t last = bounds_over(tile.q_first, backward.ranks).greatest + tile.q_rows;
  tile.window = last - bounds_over(tile.k_first, backward.ranks).least;
  EXPECT_EQ(test::codes(backward).count("S205"), 0U) << "the last query sees the first key";
  tile.window -= 1;
  EXPECT_EQ(test::codes(backward).count("S205"), 1U);
  tile.workspace = {};
  AttentionBackward& own = test::body_of<AttentionBackward>(backward, "backward", "attn.0.0");
  own.workspace = own.lse;
  own.window = 1;
  EXPECT_EQ(test::codes(backward).count("S205"), 0U) << "each row sees itself";
}

TEST_F(Shapes, CapsAreNotForLibraries) {
  AttentionBackward& tile = test::body_of<AttentionBackward>(backward, "backward", "attn.0.0");
  tile.cap = 50;
  EXPECT_EQ(test::codes(backward), Codes{});
  tile.cap = -1;
  EXPECT_EQ(test::codes(backward), Codes{"S205"});
  tile.cap = 50;
  tile.workspace = tile.lse;
  EXPECT_EQ(test::codes(backward).count("S205"), 1U);
}

TEST(RankBounds, AreThoseOfAllRanks) {
  for (const RankExpression& e :
       {RankExpression{5}, RankExpression{0, {8, 0, 1, std::int64_t{1} << 62}},
        RankExpression{-4, {3, 2, 2, 3}}, RankExpression{7, {-2, 5, 3, 4}},
        RankExpression{0, {1, 6, 1, 8}}, RankExpression{1, {1, 6, 4, 8}},
        RankExpression{9, {1, 0, 1, std::int64_t{1} << 62}, {-2, 0, 1, 2}},
        RankExpression{0, {6, 0, 4, 3}, {-1, 1, 2, 4}}}) {
    for (std::int64_t ranks = 1; ranks <= 40; ++ranks) {
      std::int64_t least = e.at(0), greatest = e.at(0);
      for (std::int64_t rank = 1; rank < ranks; ++rank) {
        least = std::min(least, e.at(rank));
        greatest = std::max(greatest, e.at(rank));
      }
      const RankBounds bounds = bounds_over(e, ranks);
      EXPECT_EQ(bounds.least, least) << e.a << " " << e.first.b << " " << ranks;
      EXPECT_EQ(bounds.greatest, greatest) << e.a << " " << e.first.b << " " << ranks;
    }
  }
}

TEST_F(Shapes, OptimizerReplacesInPlace) {
  test::body_of<AdamW>(head, "end", "adamw").m_out.operand.version.offset = 2;
  EXPECT_EQ(test::codes(head), Codes{"S205"});
}

// A kernel on a GPU reads the step while it writes states.
TEST_F(Shapes, OptimizerReadsNothingThatItWrites) {
  AdamW& update = test::body_of<AdamW>(head, "end", "adamw");
  const Operand step = update.step;
  update.step = update.master;
  update.step.rows = 4;
  EXPECT_TRUE(test::codes(head).contains("S311"));
  update.step = step;
  EXPECT_EQ(test::codes(head), Codes{});
  update.param.accumulate = true;
  EXPECT_TRUE(test::codes(head).contains("S205"));
}

TEST_F(Shapes, SumsWithoutATargetAreNamed) {
  test::body_of<ReduceScatter>(head, "end", "reduce").receive.clear();
  EXPECT_TRUE(test::codes(head).contains("S207"));
}

TEST_F(Shapes, CollectivesFitTheirGroup) {
  backward.groups[0] = {"sp", 1, 1, {0, {1, 0, 1, 2}}};
  EXPECT_EQ(test::codes(backward), Codes{"S206"}) << "an all-gather of one doubles nothing";
  head.groups[0] = {"world", 1, 1, {0, {1, 0, 1, 2}}};
  EXPECT_EQ(test::codes(head), Codes{"S206"});
}

TEST_F(Shapes, ExchangesGoToAnotherMember) {
  Op& gather = test::op_of(backward, "gather", backward.blocks[0].ops[0].name);
  ASSERT_TRUE(std::holds_alternative<AllGather>(gather.body));
  const AllGather whole = std::get<AllGather>(gather.body);
  Exchange exchange{whole.group, whole.receive.empty() ? whole.send : whole.send, whole.receive};
  exchange.receive[0].operand.rows = backward.buffers[index(whole.send[0].buffer)].rows();
  gather.body = exchange;
  EXPECT_EQ(test::codes(backward).count("S206"), 0U);
  for (const std::int64_t hop : {0, 2, -1}) {
    std::get<Exchange>(gather.body).hop = hop;
    EXPECT_EQ(test::codes(backward).count("S206"), 1U) << hop;
  }
  std::get<Exchange>(gather.body).hop = 1;
  std::get<Exchange>(gather.body).receive[0].operand.rows = 1;
  EXPECT_EQ(test::codes(backward).count("S206"), 1U);
}

TEST_F(Shapes, WorkspacesHoldAnElementOfEachMember) {
  Operand& workspace = test::body_of<AllReduce>(head, "end", "sum_norm").workspace;
  workspace.rows = 2;
  EXPECT_EQ(test::codes(head), Codes{});
  workspace.rows = 1;
  EXPECT_EQ(test::codes(head), Codes{"S206"});
  workspace = {};
  EXPECT_EQ(test::codes(head), Codes{}) << "optional";
  test::body_of<ReduceScatter>(head, "end", "reduce").workspace.rows = 1;
  EXPECT_EQ(test::codes(head), Codes{"S206"});
  test::body_of<ReduceScatter>(head, "end", "reduce").workspace.rows = -1;
  test::buffer_of(head, "sum_workspace").dtype = Dtype::bf16;
  EXPECT_EQ(test::codes(head), Codes{"S203"});
}

TEST_F(Shapes, OperandsArePresent) {
  test::body_of<Matmul>(head, "head", "logits.0.0").b = {};
  EXPECT_EQ(test::codes(head), Codes{"S207"});
}

TEST_F(Shapes, PairsAreWhole) {
  Schedule shared = test::golden("tp_sp_2.json");  // cuts are followed through its pairs
  auto& receive = test::body_of<ReduceScatter>(shared, "forward", "scatter_rows").receive;
  receive[0] = {};
  EXPECT_TRUE(test::codes(shared).contains("S207"));
  receive.clear();
  EXPECT_TRUE(test::codes(shared).contains("S207"));
}

}  // namespace
}  // namespace fpdt
