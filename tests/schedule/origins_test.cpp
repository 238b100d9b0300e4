// S7xx: rows that travel hold the tokens that ops state, and sums over tiles are whole.
#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/io/schedule_json.h"
#include "fpdt/schedule/depend.h"
#include "fpdt/schedule/verify.h"

#include "golden.h"

namespace fpdt {
namespace {

using Codes = std::set<std::string>;

// Keys of four tokens a rank travel around a ring of three, and their gradients travel back. Slot i
// of kv holds the keys of the i-th rank before this one.
Schedule ring_of_three() {
  std::string text = R"({"fpdt_schedule":4,"ranks":3,"row_multiple":1,"problem":{},)"
                     R"("groups":{"ring":{"size":3,"first":0}},"buffers":[)";
  const auto buffer = [&](std::string_view name, std::string_view role, int width, int slots) {
    text += fmt::format(R"({}{{"name":"{}","space":"device","role":"{}","category":"activations",)"
                        R"("dtype":"f32","shape":[4,{}],"slots":{}}})",
                        text.back() == '[' ? "" : ",", name, role, width, slots);
  };
  buffer("qkv", "input", 12, 1);
  buffer("q", "temporary", 4, 1);
  buffer("kv", "temporary", 8, 3);
  buffer("o", "temporary", 4, 1);
  buffer("lse", "temporary", 1, 1);
  buffer("dout", "input", 4, 1);
  buffer("delta", "temporary", 1, 1);
  buffer("dq", "temporary", 4, 1);
  buffer("dkv", "temporary", 8, 3);
  buffer("dqkv", "output", 12, 1);
  text += R"(],"states":[],"blocks":[{"name":"layer","advance":{},"ops":[)";
  const auto op = [&](const std::string& name, std::string_view lane, const std::string& fields) {
    text += fmt::format(R"({}{{"op":"{}","lane":"{}.0",{}}})", text.back() == '[' ? "" : ",", name,
                        lane, fields);
  };
  const std::string heads = R"("rows":4,"heads":1,"kv_heads":1,"head_dim":4,"token_first":"4*r")";
  op("split", "compute", R"("body":"split_heads","qkv":"qkv[0]","q":"q[0]","kv":"kv[0]",)" + heads);
  const auto tile = [](int back) {
    return fmt::format(
        R"x("q_first":"4*r","q_rows":4,"k_first":"4*((r+{}) mod 3)","k_rows":4,"heads":1,)x"
        R"("kv_heads":1,"head_dim":4)",
        3 - back);
  };
  const auto sum = [](int turn) { return turn > 0 ? " +=" : ""; };
  for (int i = 0; i < 3; ++i) {
    op(fmt::format("attn.{}", i), "compute",
       fmt::format(R"("body":"attention_forward","q":"q[0]","kv":"kv[{}]","o":"o[0]{}",)"
                   R"("lse":"lse[0]{}",{})",
                   i, sum(i), sum(i), tile(i)));
    if (i == 2) break;
    op(fmt::format("pass_kv.{}", i), "comm",
       fmt::format(R"("body":"exchange","group":"ring","send":["kv[{}]"],"receive":["kv[{}]"])", i,
                   i + 1));
  }
  op("delta", "compute",
     R"("body":"attention_delta","o":"o[0]","dout":"dout[0]","delta":"delta[0]",)"
     R"("rows":4,"heads":1,"head_dim":4)");
  for (int i = 0; i < 3; ++i) {
    op(fmt::format("dattn.{}", 2 - i), "compute",
       fmt::format(R"("body":"attention_backward","q":"q[0]","kv":"kv[{}]","dout":"dout[0]",)"
                   R"("lse":"lse[0]","delta":"delta[0]","dq":"dq[0]{}","dkv":"dkv[{}]{}",{})",
                   2 - i, sum(i), i, sum(i), tile(2 - i)));
    if (i == 2) break;
    op(fmt::format("pass_dkv.{}", i), "comm",
       fmt::format(R"("body":"exchange","group":"ring","send":["dkv[{}]"],)"
                   R"("receive":["dkv[{}]"],"hop":2)",
                   i, i + 1));
  }
  op("join", "compute",
     R"("body":"join_heads","dq":"dq[0]","dkv":"dkv[2]","dqkv":"dqkv[0]",)" + heads);
  text += R"(]}],"train":[{"repeat":1,"list":[{"block":"layer"}]}],"evaluate":[]})";
  Schedule schedule = parse_schedule(text, "ring");
  depend(schedule);
  return schedule;
}

// The findings of a schedule whose edges are made anew.
std::vector<Diagnostic> findings(Schedule schedule) {
  depend(schedule);
  return verify(schedule);
}

std::string text_of(const std::vector<Diagnostic>& findings) {
  std::string text;
  for (const Diagnostic& one : findings) {
    text += fmt::format("{} {}: {}\n", one.code, one.where, one.message);
  }
  return text;
}

class OriginsOfRing : public testing::Test {
 protected:
  Schedule ring = ring_of_three();

  template <class Body>
  Body& body(std::string_view op) {
    return test::body_of<Body>(ring, "layer", op);
  }
  void drop(std::string_view name) {
    std::erase_if(test::block_of(ring, "layer").ops, [&](const Op& op) { return op.name == name; });
  }
};

TEST_F(OriginsOfRing, IsAccepted) { EXPECT_EQ(text_of(findings(ring)), ""); }

TEST_F(OriginsOfRing, AnotherHopBringsOtherKeys) {
  body<Exchange>("pass_kv.0").hop = 2;
  EXPECT_EQ(
      text_of(findings(ring)).substr(0, 101),
      "S701 layer.attn.1: kv is stated to hold tokens 8:12; rows 0:4 of kv hold tokens 4:8 on "
      "rank 0\nS701 la");
}

TEST_F(OriginsOfRing, TheOtherDirectionBringsOtherKeys) {
  body<Exchange>("pass_kv.0").hop = 2;
  body<Exchange>("pass_kv.1").hop = 2;
  const std::string text = text_of(findings(ring));
  EXPECT_NE(text.find("S701 layer.attn.1"), std::string::npos) << text;
  EXPECT_NE(text.find("S701 layer.dattn.2"), std::string::npos) << text;
}

TEST_F(OriginsOfRing, GradientsOfKeysGoBack) {
  body<Exchange>("pass_dkv.1").hop = 1;
  EXPECT_EQ(text_of(findings(ring)),
            "S702 layer.dattn.0: adds tokens 0:4 to tokens 4:8 on rank 0\n");
}

TEST_F(OriginsOfRing, AGradientDoesNotGoToTheOtherNeighbour) {
  body<Exchange>("pass_dkv.0").hop = 1;
  EXPECT_EQ(test::codes(ring), Codes{"S702"});
}

TEST_F(OriginsOfRing, StatedKeysAreThoseThatAreThere) {
  // The boxes are permuted: together they cover what they did.
  std::swap(body<AttentionForward>("attn.1").k_first, body<AttentionForward>("attn.2").k_first);
  EXPECT_EQ(test::codes(ring), Codes{"S701"});
  std::swap(body<AttentionForward>("attn.1").k_first, body<AttentionForward>("attn.2").k_first);
  std::swap(body<AttentionBackward>("dattn.1").k_first, body<AttentionBackward>("dattn.2").k_first);
  EXPECT_EQ(test::codes(ring), (Codes{"S701", "S702"}));
}

TEST_F(OriginsOfRing, ATileOfAGradientIsNotLost) {
  // The tile writes what it should add, to a version of its own that no op reads.
  Buffer spare = test::buffer_of(ring, "dkv");
  spare.name = "spare";
  ring.buffers.push_back(spare);
  Target& dkv = body<AttentionBackward>("dattn.1").dkv;
  dkv.operand.buffer = static_cast<BufferIndex>(ring.buffers.size()) - 1;
  dkv.accumulate = false;
  EXPECT_EQ(text_of(findings(ring)),
            "S703 layer.join: dkv: tokens 0:4 of dkv have not received each of their tiles once on "
            "rank 0\n");
}

TEST_F(OriginsOfRing, ATileOfAnOutputIsNotLost) {
  for (const char* name : {"o", "lse"}) {
    Buffer spare = test::buffer_of(ring, name);
    spare.name += ".spare";
    ring.buffers.push_back(spare);
  }
  auto& tile = body<AttentionForward>("attn.2");
  const auto buffers = static_cast<BufferIndex>(ring.buffers.size());
  tile.o.operand.buffer = buffers - 2;
  tile.lse.operand.buffer = buffers - 1;
  tile.o.accumulate = tile.lse.accumulate = false;
  const std::string text = text_of(findings(ring));
  EXPECT_NE(text.find("S703 layer.delta: o"), std::string::npos) << text;
  EXPECT_NE(text.find("S703 layer.dattn.2: lse"), std::string::npos) << text;
}

TEST_F(OriginsOfRing, APartIsNotAddedTwice) {
  Buffer spare = test::buffer_of(ring, "dkv");
  spare.name = "spare";
  ring.buffers.push_back(spare);
  Op again = test::op_of(ring, "layer", "pass_dkv.0");
  again.name = "again";
  auto& exchange = std::get<Exchange>(again.body);
  const Operand part = exchange.receive[0].operand;
  exchange.receive[0].operand.buffer = static_cast<BufferIndex>(ring.buffers.size()) - 1;
  const Op add{"add", {LaneKind::compute, 0}, Copy{exchange.receive[0].operand, {part, true}}, {}};
  std::vector<Op>& ops = test::block_of(ring, "layer").ops;
  const auto at =
      std::find_if(ops.begin(), ops.end(), [](const Op& op) { return op.name == "dattn.1"; });
  ops.insert(ops.insert(at, add), again);
  EXPECT_EQ(text_of(findings(ring)),
            "S703 layer.join: dkv: tokens 0:4 of dkv have not received each of their tiles once on "
            "rank 0\n");
}

TEST_F(OriginsOfRing, JoinTakesGradientsOfItsTokens) {
  body<JoinHeads>("join").token_first = RankExpression{0, {4, 1, 1, 3}};
  EXPECT_EQ(test::codes(ring), Codes{"S701"});
  body<JoinHeads>("join").token_first = RankExpression{0, {4, 0, 1, 3}};
  body<JoinHeads>("join").dkv.version.offset = 1;
  EXPECT_EQ(test::codes(ring).count("S701"), 1U) << "without the last step";
}

// Zigzag: rank 0 holds the first and the last quarter, rank 1 what is between.
TEST(Origins, KeysOfAZigzagAreThoseThatAreThere) {
  Schedule schedule = test::golden("zigzag_ring_2.json");
  const auto tile = [&](std::string_view op) -> AttentionForward& {
    return test::body_of<AttentionForward>(schedule, "forward", op);
  };
  std::swap(tile("attn.1.0").k_first, tile("attn_next.1.0").k_first);
  EXPECT_EQ(text_of(verify(schedule)),
            "S701 forward.attn.1.0: kv is stated to hold tokens 4:8; rows 0:4 of kv hold tokens "
            "0:4 on rank 0\n"
            "S701 forward.attn_next.1.0: kv is stated to hold tokens 0:4; rows 0:4 of kv hold "
            "tokens 4:8 on rank 0\n");
}

TEST(Origins, QueriesOfAZigzagAreThoseThatAreThere) {
  Schedule schedule = test::golden("zigzag_ring_2.json");
  for (const char* op : {"attn_next.0.0", "attn_next.1.0"}) {
    Operand& q = test::body_of<AttentionForward>(schedule, "forward", op).q;
    q.row_first = 4 - q.row_first;
  }
  EXPECT_EQ(test::codes(schedule), Codes{"S701"});
}

TEST(Origins, HalvesAreNotSwappedOnTheWay) {
  Schedule schedule = test::golden("zigzag_ring_2.json");
  auto& pass = test::body_of<Exchange>(schedule, "forward", "pass_kv");
  Operand half = pass.send[0];
  half.rows = 4;
  Operand other = half;
  other.row_first = 4;
  pass.send = {half, other};
  half.version = other.version = pass.receive[0].operand.version;
  pass.receive = {{half, false}, {other, false}};
  EXPECT_EQ(test::codes(schedule), Codes{});
  std::swap(pass.send[0], pass.send[1]);
  EXPECT_EQ(test::codes(schedule), Codes{"S701"});
  std::swap(pass.send[0], pass.send[1]);
  auto& back = test::body_of<Exchange>(schedule, "backward", "pass_dkv");
  half = back.send[0];
  half.rows = 4;
  other = half;
  other.row_first = 4;
  back.send = {other, half};
  half.version = other.version = back.receive[0].operand.version;
  back.receive = {{half, false}, {other, false}};
  EXPECT_EQ(test::codes(schedule), Codes{"S702"});
}

// Keys are gathered, and sums of their gradients are scattered; two replicas of two ranks.
class OriginsOfGathered : public testing::Test {
 protected:
  Schedule gathered = test::golden("lss_2.json");

  void SetUp() override {
    gathered.ranks = 4;
    gathered.groups[0].first = RankExpression{0, {2, 0, 2, 2}};
    gathered.groups.push_back({"across", 2, 2, RankExpression{0, {1, 0, 1, 2}}});
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
  }
};

TEST_F(OriginsOfGathered, IsAccepted) { EXPECT_EQ(text_of(verify(gathered)), ""); }

TEST_F(OriginsOfGathered, KeysComeFromTheRanksOfTheReplica) {
  test::body_of<AllGather>(gathered, "forward", "gather_kv").group = "across";
  const std::string text = text_of(verify(gathered));
  EXPECT_EQ(text.find("S701 forward.attn: kv is stated to hold tokens 0:8; rows 0:8 of kv_all "
                      "hold tokens 8:16 on rank 1\n"),
            0U)
      << text;
}

TEST_F(OriginsOfGathered, GradientsAreSummedOverTheReplica) {
  test::body_of<ReduceScatter>(gathered, "backward", "scatter_dkv").group = "across";
  EXPECT_EQ(test::codes(gathered), Codes{"S702"});
}

TEST_F(OriginsOfGathered, EachRankTakesItsPart) {
  Op& op = test::op_of(gathered, "backward", "scatter_dkv");
  const auto scatter = std::get<ReduceScatter>(op.body);
  Operand own = scatter.send[0];
  own.rows = 8;
  op = {"take", {LaneKind::compute, 0}, Copy{own, scatter.receive[0]}, {}};
  EXPECT_EQ(text_of(findings(gathered)),
            "S701 backward.join: dkv is stated to hold tokens 8:16; rows 0:8 of dkv hold tokens "
            "0:8 on rank 1\n");
}

// The parts of a gradient are dealt out, and each rank adds up what it received.
TEST_F(OriginsOfGathered, APartOfEachRankIsAdded) {
  std::vector<Op>& ops = test::block_of(gathered, "backward").ops;
  const auto scatter =
      std::get<ReduceScatter>(test::op_of(gathered, "backward", "scatter_dkv").body);
  Buffer dealt = test::buffer_of(gathered, "dkv_all");
  dealt.name = "dealt";
  gathered.buffers.push_back(dealt);
  for (Buffer& buffer : gathered.buffers) buffer.offset = kUnplaced;
  const Operand received{static_cast<BufferIndex>(gathered.buffers.size()) - 1, Version::at(0), 0,
                         8};
  const Op deal{"deal",
                {LaneKind::comm, 0},
                AllToAll{"sp", scatter.send, {{{received.buffer, Version::at(0)}, false}}},
                {}};
  const Op first{"first", {LaneKind::compute, 0}, Copy{received, scatter.receive[0]}, {}};
  Op second = first;
  second.name = "second";
  auto& copy = std::get<Copy>(second.body);
  copy.source.row_first = 8;
  copy.target.accumulate = true;
  const auto at =
      std::find_if(ops.begin(), ops.end(), [](const Op& op) { return op.name == "scatter_dkv"; });
  *at = deal;
  ops.insert(at + 1, {first, second});
  EXPECT_EQ(text_of(findings(gathered)), "");
  test::body_of<Copy>(gathered, "backward", "second").source.row_first = 0;
  EXPECT_EQ(text_of(findings(gathered)),
            "S703 backward.join: dkv: tokens 0:8 of dkv have not received each of their tiles once "
            "on rank 0\n");
}

TEST_F(OriginsOfGathered, GradientsOfQueriesAreNotThoseOfKeys) {
  auto& join = test::body_of<JoinHeads>(gathered, "backward", "join");
  join.dkv = join.dq;
  for (Buffer& buffer : gathered.buffers) buffer.offset = kUnplaced;
  EXPECT_EQ(text_of(findings(gathered)),
            "S703 backward.join: dkv is not a sum over tiles of keys\n");
}

// Blocks that make two chunks of tokens, take one of them, and combine the first with the one that
// was taken or with that of the layer.
Schedule chunks(const std::vector<std::pair<std::string, int>>& calls) {
  std::string text =
      R"({"fpdt_schedule":4,"ranks":1,"row_multiple":1,"problem":{},"groups":{},"buffers":[)";
  const auto buffer = [&](std::string_view fields) {
    text += fmt::format(R"({}{{"space":"device","category":"activations",{}}})",
                        text.back() == '[' ? "" : ",", fields);
  };
  buffer(R"("name":"ids","role":"input","dtype":"i32","shape":[8],"slots":1)");
  buffer(R"("name":"table","role":"input","dtype":"f32","shape":[9,2],"slots":1)");
  buffer(R"("name":"x","role":"temporary","dtype":"f32","shape":[4,2],"slots":2)");
  buffer(R"("name":"taken","role":"temporary","dtype":"f32","shape":[4,2],"slots":1)");
  buffer(R"("name":"y","role":"temporary","dtype":"f32","shape":[4,2],"slots":1)");
  text +=
      R"(],"feeds":[{"buffer":"ids","holds":"tokens","rows":8,"first":0}],"states":[],"blocks":[)"
      R"({"name":"make","advance":{},"ops":[)";
  const auto embedding = [](int chunk) {
    return fmt::format(
        R"({{"op":"x.{0}","lane":"compute.0","body":"embedding","tokens":"ids[0] rows {1}:{2}",)"
        R"("table":"table[0]","x":"x[{0}]","rows":4,"width":2,"vocabulary":9,"token_first":{1}}})",
        chunk, 4 * chunk, 4 * chunk + 4);
  };
  text += embedding(0) + "," + embedding(1) + R"(]},{"name":"take","advance":{"taken":1},"ops":[)";
  text += R"({"op":"take","lane":"compute.0","body":"copy","source":"x[layer]",)"
          R"("target":"taken[+0]"}]})";
  for (const char* dy : {"taken[-1]", "x[layer]"}) {
    text +=
        fmt::format(R"(,{{"name":"{}","advance":{{"y":1}},"ops":[{{"op":"dx","lane":"compute.0",)"
                    R"("body":"norm_backward","x":"x[0]","dy":"{}","weight":"table[0] rows 0:1",)"
                    R"("dx":"y[+0]","rows":4,"width":2}}]}})",
                    dy[0] == 't' ? "use_taken" : "use", dy);
  }
  text += R"(],"train":[{"repeat":1,"list":[)";
  for (const auto& [block, layer] : calls) {
    text += fmt::format(R"({}{{"block":"{}","layer":{}}})", text.back() == '[' ? "" : ",", block,
                        layer);
  }
  text += R"(]}],"evaluate":[]})";
  Schedule schedule = parse_schedule(text, "chunks");
  depend(schedule);
  return schedule;
}

// A call that finds what an earlier call of its block found is not walked.
TEST(Origins, ACallThatFindsOtherRowsIsWalked) {
  for (const int layer : {0, 1}) {
    const Schedule schedule =
        chunks({{"make", 0}, {"take", 0}, {"use_taken", 0}, {"take", layer}, {"use_taken", 0}});
    EXPECT_EQ(text_of(verify(schedule)),
              layer == 0 ? ""
                         : "S702 use_taken.dx: dy holds tokens 4:8, and the operands before it "
                           "tokens 0:4 on rank 0\n");
  }
}

TEST(Origins, ACallWhoseVersionsLieApartOtherwiseIsWalked) {
  EXPECT_EQ(text_of(verify(chunks({{"make", 0}, {"use", 0}, {"use", 0}}))), "");
  EXPECT_EQ(text_of(verify(chunks({{"make", 0}, {"use", 0}, {"use", 1}}))),
            "S702 use.dx: dy holds tokens 4:8, and the operands before it tokens 0:4 on rank 0\n");
}

}  // namespace
}  // namespace fpdt
