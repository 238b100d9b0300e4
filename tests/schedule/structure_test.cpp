// S1xx: each kind of damage gives exactly its code.
#include <cmath>

#include <gtest/gtest.h>

#include "fpdt/schedule/verify.h"

#include "golden.h"

namespace fpdt {
namespace {

using Codes = std::set<std::string>;

class Structure : public testing::Test {
 protected:
  Schedule schedule = test::golden("fpdt_backward.json");
  Op& op(std::string_view name) { return test::op_of(schedule, "backward", name); }
  Codes codes() const { return test::codes(schedule); }
};

TEST_F(Structure, NamesAreUniqueAndPlain) {
  schedule.buffers[1].name = schedule.buffers[0].name;
  EXPECT_EQ(codes(), Codes{"S101"});
  schedule.buffers[1].name = "w[0]";
  EXPECT_EQ(codes(), Codes{"S101"});
  schedule.buffers[1].name = "w";
  op("attn.0.0").name = "attn.0.1";
  EXPECT_EQ(codes(), Codes{"S101"});
  op("attn.0.1").name = "";
  EXPECT_EQ(codes(), Codes{"S101"});
}

TEST_F(Structure, BlockNamesHoldNoDot) {
  schedule.blocks[0].name = "gather.1";
  EXPECT_EQ(codes(), Codes{"S101"});
}

TEST_F(Structure, IndicesExist) {
  const Schedule whole = schedule;
  op("attn.0.0").after[0].op = 99;
  EXPECT_EQ(codes(), Codes{"S102"});
  schedule = whole;
  op("attn.0.0").after[0].block = 2;
  EXPECT_EQ(codes(), Codes{"S102"});
  schedule = whole;
  test::body_of<Copy>(schedule, "backward", "spill.0").source.buffer = 99;
  EXPECT_EQ(codes(), Codes{"S102"});
  schedule = whole;
  schedule.train[0].block = -1;
  EXPECT_EQ(codes(), Codes{"S102"});
  schedule = whole;
  schedule.states[0].buffer = -1;
  EXPECT_EQ(codes(), Codes{"S102"});
}

TEST_F(Structure, SizesAreSane) {
  const Schedule whole = schedule;
  schedule.buffers[0].slots = 0;
  EXPECT_EQ(codes(), Codes{"S103"});
  schedule = whole;
  schedule.buffers[0].shape = {std::int64_t{1} << 62, std::int64_t{1} << 62};
  EXPECT_EQ(codes(), Codes{"S103"});
  schedule = whole;
  schedule.buffers[0].shape = {};
  EXPECT_EQ(codes(), Codes{"S103"});
  schedule = whole;
  test::body_of<Copy>(schedule, "backward", "spill.0").source.version.offset = INT64_MIN;
  EXPECT_EQ(codes(), Codes{"S103"});
  schedule = whole;
  test::body_of<AttentionBackward>(schedule, "backward", "attn.0.0").head_first.first.n = 0;
  EXPECT_EQ(codes(), Codes{"S103"});
  schedule = whole;
  test::body_of<AttentionBackward>(schedule, "backward", "attn.0.0").scale = std::nan("");
  EXPECT_EQ(codes(), Codes{"S103"});
  schedule = whole;
  test::body_of<Matmul>(schedule, "backward", "proj.0").m = INT64_MAX;
  EXPECT_EQ(codes(), Codes{"S103"});
  schedule = whole;
  schedule.ranks = INT64_MAX;
  EXPECT_EQ(codes(), Codes{"S103"});
}

// What differs between ranks is computed for each of them, so there is a limit to it.
// Two tiles on each of a million ranks are too many, unless they are those of whole rings.
TEST(Limits, TilesThatDependOnTheRank) {
  const auto codes_with = [](const RankExpression& q_first) {
    Schedule schedule;
    schedule.ranks = 1 << 20;
    schedule.blocks.push_back({"step", {}, {}});
    for (const std::int64_t first : {0, 1 << 20}) {
      AttentionForward tile;
      tile.q_first = q_first;
      tile.k_first = first;
      tile.q_rows = tile.heads = tile.kv_heads = tile.head_dim = 1;
      tile.k_rows = 1 << 20;
      schedule.blocks[0].ops.push_back({std::to_string(first), {}, tile, {}});
    }
    return test::codes(schedule);
  };
  EXPECT_EQ(codes_with({0, {1, 0, 1, 1 << 19}}).count("S103"), 1U);
  EXPECT_EQ(codes_with({0, {1, 0, 1, 1 << 20}}).count("S103"), 0U);
}

// Nor do many ways to share a million ranks take minutes.
TEST(Limits, WaysInWhichRanksDiffer) {
  Schedule schedule;
  schedule.ranks = 1 << 20;
  schedule.blocks.push_back({"step", {}, {}});
  for (std::int64_t i = 0; i < 40; ++i) {
    AttentionForward tile;
    tile.q_first = {0, {1, i, 1, 1 << 20}};
    tile.q_rows = tile.k_rows = tile.heads = tile.kv_heads = tile.head_dim = 1;
    schedule.blocks[0].ops.push_back({std::to_string(i), {}, tile, {}});
  }
  EXPECT_EQ(test::codes(schedule).count("S103"), 1U);
}

TEST_F(Structure, EdgesPointBackwards) {
  const Schedule whole = schedule;
  op("attn.0.0").after[0] = {1, 39, 0};
  EXPECT_EQ(codes(), Codes{"S102"});
  op("attn.0.0").after[0] = {1, 20, 0};
  EXPECT_EQ(codes(), Codes{"S104"});
  op("attn.0.0").after[0] = {1, 3, 0};
  EXPECT_EQ(codes(), Codes{"S104"}) << "waits for itself";
  op("attn.0.0").after[0] = {0, 0, 0};
  EXPECT_EQ(codes(), Codes{"S104"}) << "another block cannot be in this call";
  op("attn.0.0").after[0] = {1, 0, -1};
  EXPECT_EQ(codes(), Codes{"S104"});
  op("attn.0.0").after[0] = {1, 0, 0, true};
  EXPECT_EQ(codes(), Codes{"S104"}) << "the layer of an earlier call";
  op("attn.0.0").after[0] = {1, 0, 17, true};
  EXPECT_EQ(codes(), Codes{"S105"}) << "looked for among too many";
}

TEST_F(Structure, EdgesNameCallsThatAre) {
  op("attn.0.0").after.push_back({0, 0, 4});
  EXPECT_EQ(codes(), Codes{"S105"});
}

TEST_F(Structure, CollectivesRunOnCommLanes) {
  op("a2a.0").lane = {LaneKind::compute, 0};
  EXPECT_EQ(codes(), Codes{"S106"});
  op("a2a.0").lane = {LaneKind::comm, 0};
  op("join.0").lane = {LaneKind::comm, 0};
  EXPECT_EQ(codes(), Codes{"S106"});
}

TEST_F(Structure, GroupsExist) {
  test::body_of<AllToAll>(schedule, "backward", "a2a.0").group = "tp";
  EXPECT_EQ(codes(), Codes{"S107"});
}

TEST_F(Structure, MembersOfAGroupAgree) {
  schedule.groups[0].first = {1};
  EXPECT_EQ(codes(), Codes{"S108"}) << "rank 0 is not in the group that it names";
  schedule.groups[0].first = {0, {1, 0, 1, 2}};
  EXPECT_EQ(codes(), Codes{"S108"}) << "rank 1's group ends after the last rank";
  schedule.ranks = 4;
  schedule.groups[0] = {"sp", 3, 1, {0, {1, 0, 3, 2}}};
  EXPECT_EQ(codes().count("S108"), 1u) << "rank 3 names a group from 1, its members one from 0";
}

TEST_F(Structure, AdvanceNamesBuffersOnce) {
  std::swap(schedule.blocks[1].advance[0], schedule.blocks[1].advance[1]);
  EXPECT_EQ(codes(), Codes{"S109"});
}

TEST_F(Structure, StatesFitTheirBuffers) {
  const Schedule whole = schedule;
  schedule.states[0].shape = {25, 8};
  EXPECT_EQ(codes(), Codes{"S110"});
  EXPECT_EQ(verify(schedule).front().message,
            "w_shard[0] does not hold one of 2 pieces of the tensor's 200 elements");
  schedule = whole;
  schedule.states[0].version = 3;
  EXPECT_EQ(codes(), Codes{"S110"});
  schedule = whole;
  schedule.states[0].replicas = 2;
  EXPECT_EQ(codes(), Codes{"S110"});
  schedule = whole;
  schedule.states[0].kind = "weight";
  EXPECT_EQ(codes(), Codes{"S110"});
  schedule = whole;
  schedule.states[1].tensor = schedule.states[0].tensor;
  EXPECT_EQ(codes(), Codes{"S101"});
}

TEST_F(Structure, CallArgumentsAreCounts) {
  schedule.train[0].layer = -1;
  EXPECT_EQ(codes(), Codes{"S111"});
}

TEST(States, HaveTheTypeOfTheirKind) {
  Schedule head = test::golden("tied_head.json");
  test::buffer_of(head, "moment1").dtype = Dtype::bf16;
  EXPECT_EQ(test::codes(head), Codes{"S110"});
  head = test::golden("tied_head.json");
  test::buffer_of(head, "table_shard").dtype = Dtype::i32;
  EXPECT_EQ(test::codes(head), Codes{"S110"});
}

TEST(States, ShareNoSlot) {
  Schedule head = test::golden("tied_head.json");
  head.states[3].buffer = head.states[2].buffer;
  EXPECT_EQ(test::codes(head), Codes{"S110"});
}

TEST(Cuts, AreEqualPartsOfTheSections) {
  const Schedule whole = test::golden("tp_sp_2.json");
  const auto codes_with = [&](auto&& change) {
    Schedule schedule = whole;
    change(schedule.states[1]);
    return test::codes(schedule);
  };
  EXPECT_EQ(codes_with([](State&) {}), Codes{});
  EXPECT_EQ(codes_with([](State& s) { s.cut.sections = {16, 8}; }), Codes{});
  EXPECT_EQ(codes_with([](State& s) { s.cut.sections = {16, 7}; }), Codes{"S110"});
  EXPECT_EQ(codes_with([](State& s) { s.cut.sections = {15, 9}; }), Codes{"S110"});
  EXPECT_EQ(codes_with([](State& s) { s.cut.axis = 2; }), Codes{"S110"});
  EXPECT_EQ(codes_with([](State& s) { s.cut = {}, s.shape = {}; }), Codes{"S110"});
  EXPECT_EQ(codes_with([](State& s) { s.cut.ways = 0; }).count("S110"), 1U);
  EXPECT_EQ(codes_with([](State& s) { s.cut.part = 0; }), Codes{"S110"}) << "held twice";
  EXPECT_EQ(codes_with([](State& s) {
              s.cut.part = {1, {1, 0, 1, 2}};
            }),
            Codes{"S110"})
      << "no such part";
  EXPECT_EQ(codes_with([](State& s) { s.cut = {}; }), Codes{"S110"}) << "the whole does not fit";
  EXPECT_EQ(codes_with([](State& s) { s.shards = 2; }), Codes{"S110"}) << "more pieces than ranks";
}

// Ranks without a piece would read and write elsewhere.
TEST(States, AreHeldByEveryRank) {
  Schedule schedule = test::golden("tp_sp_2.json");
  State& norm = schedule.states[0];
  norm.replicas = 1;
  norm.shard = {0, {1, 0, 1, 2}};  // of one piece
  EXPECT_EQ(test::codes(schedule).count("S110"), 1U);
}

// Sections of queries are cut, and those of keys and values are the same on both ranks.
TEST(Cuts, MayDifferBetweenTheSectionsOfATensor) {
  const auto refused = [&](auto&& change) {
    Schedule schedule = test::golden("tp_sp_2.json");
    State& queries = schedule.states[1];
    queries.cut.sections = {8};
    queries.cut.ways = 2;
    State rest = queries;
    rest.cut = {0, 8, {16}, 1, {}};
    rest.replicas = 2;
    Buffer more = schedule.buffers[static_cast<std::size_t>(queries.buffer)];
    more.name = "w_kv";
    more.shape = {16, 8};
    more.offset = 65536;
    rest.buffer = static_cast<BufferIndex>(schedule.buffers.size());
    schedule.buffers.push_back(more);
    change(queries, rest);
    schedule.states.push_back(rest);
    return test::codes(schedule).count("S110") == 1;
  };
  EXPECT_FALSE(refused([](State&, State&) {}));
  EXPECT_TRUE(refused([](State&, State& rest) { rest.cut.sections = {8}; }));
  EXPECT_TRUE(refused([](State&, State& rest) { rest.cut.first = 7; }));
  EXPECT_TRUE(refused([](State&, State& rest) { rest.cut.first = 9; }));
  EXPECT_TRUE(refused([](State& queries, State&) { queries.cut.first = 4; }));
}

}  // namespace
}  // namespace fpdt
