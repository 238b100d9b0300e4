// Scratch operands have no contents before and after an op. Two attention tiles run on two lanes,
// and so do two sums.
#include <gtest/gtest.h>

#include "fpdt/io/schedule_json.h"
#include "fpdt/schedule/depend.h"
#include "fpdt/schedule/print.h"
#include "fpdt/schedule/verify.h"

#include "golden.h"
#include "tiny.h"

namespace fpdt {
namespace {

using Codes = std::set<std::string>;
using test::Tiny;

constexpr BufferIndex kQ = 0, kKv = 1, kO = 2, kLse = 3, kWorkspace = 4;

Operand plus(BufferIndex buffer, std::int64_t n) { return {buffer, Version::plus(n)}; }

Op tile(std::string name, std::int32_t lane, Pass pass, std::int64_t workspace) {
  AttentionForward op;
  op.q = plus(kQ, 0);
  op.kv = plus(kKv, 0);
  op.o = {plus(kO, lane), false};
  op.lse = {plus(kLse, lane), false};
  op.workspace = plus(kWorkspace, workspace);
  op.q_rows = op.k_rows = 4;
  op.heads = op.kv_heads = op.head_dim = 1;
  op.pass = pass;
  return {std::move(name), {LaneKind::compute, lane}, op, {}};
}

// Tile `second` uses version `workspace` of a ring of `slots`, tile `first` uses version 0.
Tiny two_tiles(std::int64_t workspace, std::int64_t slots) {
  Tiny tiny;
  tiny.buffer("q", 1, 4, Role::input).buffer("kv", 1, 8, Role::input);
  tiny.buffer("o", 2).buffer("lse", 2).buffer("workspace", slots, 6);
  tiny.block("one", {{kWorkspace, 2}});
  tiny.schedule.blocks[0].ops = {tile("first", 0, Pass::forward, 0),
                                 tile("second", 1, Pass::recompute, workspace)};
  tiny.call("one");
  return tiny;
}

TEST(Scratch, LanesThatShareItAreInOrder) {
  EXPECT_EQ(test::codes(two_tiles(1, 1).schedule), Codes{"S309"});
  EXPECT_EQ(test::codes(two_tiles(1, 2).schedule), Codes{}) << "each lane has its own";
  EXPECT_EQ(test::codes(two_tiles(1, 1).after("first").schedule), Codes{});
}

TEST(Scratch, OrderIsDerivedFromVersions) {
  Schedule schedule = two_tiles(1, 1).schedule;
  depend(schedule);
  EXPECT_EQ(test::edges_text(schedule), "one.first:\none.second: first\n");
  EXPECT_EQ(test::codes(schedule), Codes{});
  Schedule free = two_tiles(1, 2).schedule;
  depend(free);
  EXPECT_EQ(test::edges_text(free), "one.first:\none.second:\n");
}

TEST(Scratch, EachUseIsAVersionOfItsOwn) {
  EXPECT_EQ(test::codes(two_tiles(0, 1).after("first").schedule), Codes{"S305"});
}

TEST(Scratch, LeavesNothingToReadOrToAddTo) {
  Tiny read = two_tiles(1, 2);
  read.buffer("copy", 1, 6).copy("read", 1, "workspace[+1]", "copy[+0]");
  EXPECT_EQ(test::codes(read.schedule), Codes{"S303"});
  Tiny add = two_tiles(1, 2);
  add.buffer("ones", 1, 6)
      .fill("ones", 1, "ones[+0]")
      .copy("add", 1, "ones[+0]", "workspace[+1] +=");
  EXPECT_EQ(test::codes(add.schedule), Codes{"S306"});
}

TEST(Scratch, DestroysWhatSharesItsBytes) {
  Tiny tiny;
  tiny.buffer("q", 1, 4, Role::input).offset(0).buffer("kv", 1, 8, Role::input).offset(256);
  tiny.buffer("o", 2).offset(512).buffer("lse", 2).offset(1024);
  tiny.buffer("workspace", 2, 6).offset(1536).buffer("kept", 1, 4).offset(1536);
  tiny.buffer("copy", 1, 4).offset(2048);
  tiny.block("one").fill("fill", 0, "kept[+0]");
  tiny.schedule.blocks[0].ops.push_back(tile("first", 0, Pass::forward, 0));
  tiny.copy("read", 0, "kept[+0]", "copy[+0]").call("one");
  EXPECT_EQ(test::codes(tiny.schedule), Codes{"S405"});
}

// Sums of two ranks, with workspaces in a ring of `slots`.
Tiny two_sums(std::int64_t slots, std::int32_t second_lane, Dtype dtype = Dtype::f32) {
  Tiny tiny;
  tiny.schedule.ranks = 2;
  tiny.schedule.groups.push_back({"world", 2, 1, {}});
  tiny.buffer("part", 1, 4, Role::input).buffer("total", 2).buffer("workspace", slots, 1);
  for (const char* values : {"part", "total"}) test::buffer_of(tiny.schedule, values).dtype = dtype;
  tiny.block("one", {{2, 2}});
  for (const std::int32_t i : {0, 1}) {
    const AllReduce sum{"world", {plus(0, 0)}, {{plus(1, i), false}}, plus(2, i)};
    tiny.schedule.blocks[0].ops.push_back(
        {i == 0 ? "first" : "second", {LaneKind::comm, i * second_lane}, sum, {}});
  }
  tiny.call("one");
  return tiny;
}

TEST(Scratch, SumsOfOneLaneShareItWithoutWaiting) {
  Schedule schedule = two_sums(1, 0, Dtype::bf16).schedule;
  EXPECT_EQ(test::codes(schedule), Codes{}) << "one f32 holds two bf16";
  depend(schedule);
  EXPECT_EQ(test::edges_text(schedule), "one.first:\none.second:\n");
}

TEST(Scratch, SumsOfTwoLanesHaveTheirOwn) {
  const auto wide = [](std::int64_t slots) {
    Tiny tiny = two_sums(slots, 1);
    test::buffer_of(tiny.schedule, "workspace").shape = {2};
    return tiny;
  };
  EXPECT_EQ(test::codes(wide(1).schedule), Codes{"S309"});
  EXPECT_EQ(test::codes(wide(1).after("first").schedule), Codes{});
  EXPECT_EQ(test::codes(wide(2).schedule), Codes{});
  EXPECT_EQ(test::codes(two_sums(2, 1).schedule), Codes{"S206"}) << "one f32 for two ranks";
}

TEST(Scratch, IsDeviceMemoryOfFloats) {
  Schedule schedule = two_tiles(1, 2).schedule;
  test::buffer_of(schedule, "workspace").dtype = Dtype::bf16;
  EXPECT_EQ(test::codes(schedule), Codes{"S203"});
  test::buffer_of(schedule, "workspace").dtype = Dtype::f32;
  test::buffer_of(schedule, "workspace").space = MemorySpace::host_pinned;
  EXPECT_EQ(test::codes(schedule), Codes{"S204"});
}

TEST(Scratch, IsWrittenLikeAnOperand) {
  const std::string text = print(two_tiles(1, 2).schedule);
  EXPECT_NE(text.find("\"workspace\":\"workspace[+1]\""), std::string::npos) << text;
  EXPECT_EQ(print(parse_schedule(text, "printed")), text);
}

}  // namespace
}  // namespace fpdt
