// Derived edges equal those written by hand, with no edge too many, with or without a window.
#include "fpdt/schedule/depend.h"

#include <set>

#include <gtest/gtest.h>

#include "fpdt/schedule/verify.h"

#include "golden.h"
#include "tiny.h"

namespace fpdt {
namespace {

using test::Tiny;

std::string derived(Schedule schedule) {
  depend(schedule);
  return test::edges_text(schedule);
}

void strip(Schedule& schedule) {
  for (Block& block : schedule.blocks) {
    for (Op& op : block.ops) op.after.clear();
  }
}

TEST(Depend, FindsTheEdgesWrittenByHand) {
  for (const char* name : {"fpdt_backward.json", "tied_head.json", "zigzag_ring_2.json",
                           "lss_2.json", "tp_sp_2.json"}) {
    Schedule schedule = test::golden(name);
    const std::string by_hand = test::edges_text(schedule);
    strip(schedule);
    EXPECT_EQ(derived(schedule), by_hand) << name;
  }
}

TEST(Depend, ForgetsEdgesThatWereThere) {
  Schedule schedule = test::golden("tied_head.json");
  const std::string by_hand = test::edges_text(schedule);
  test::op_of(schedule, "end", "spill_loss").after.push_back({2, 0, 0});
  EXPECT_EQ(derived(schedule), by_hand);
}

TEST(Depend, LaneOrderNeedsNoEdge) {
  Tiny tiny;
  tiny.buffer("a")
      .buffer("b")
      .block("one")
      .fill("w", 0, "a[+0]")
      .copy("x", 0, "a[+0]", "b[+0]")
      .call("one");
  EXPECT_EQ(derived(tiny.schedule), "one.w:\none.x:\n");
}

TEST(Depend, WhatAnEdgeImpliesNeedsNone) {
  Tiny tiny;
  tiny.buffer("a").buffer("b").buffer("c").block("one").fill("w", 0, "a[+0]");
  tiny.copy("x", 1, "a[+0]", "b[+0]")
      .copy("y", 2, "b[+0]", "c[+0]")
      .fill("v", 0, "a[+1]")
      .call("one");
  tiny.copy("z", 2, "a[+1]", "b[+1]");
  EXPECT_EQ(derived(tiny.schedule), "one.w:\none.x: w\none.y: x\none.v: x\none.z: v\n");
}

TEST(Depend, RowsThatDoNotMeetNeedNoEdge) {
  Tiny tiny;
  tiny.buffer("a")
      .buffer("b")
      .block("one")
      .fill("w", 0, "a[+0] rows 0:2")
      .fill("v", 1, "a[+0] rows 2:4");
  tiny.copy("x", 2, "a[+0] rows 2:4", "b[+0] rows 0:2").call("one");
  EXPECT_EQ(derived(tiny.schedule), "one.w:\none.v:\none.x: v\n");
}

TEST(Depend, EvaluateAddsItsEdges) {
  Tiny tiny;
  tiny.buffer("a").buffer("b").block("one").fill("w", 0, "a[+0]");
  tiny.block("two").copy("x", 1, "a[+0]", "b[+0]");
  tiny.schedule.evaluate = {{0, 0, 0, 0}, {1, 0, 0, 0}};
  EXPECT_EQ(derived(tiny.schedule), "one.w:\ntwo.x: one.w@-1\n");
}

// Forward over layers with a ring of weights and one stash per layer; backward in reverse.
Schedule layered(std::int32_t layers) {
  Tiny tiny;
  tiny.buffer("w", 2).buffer("x", 2).buffer("stash", layers).buffer("dx", 3).buffer("back", 2);
  tiny.block("gather").fill("gather", 1, "w[layer]");
  tiny.block("forward", {{1, 1}})
      .copy("step", 0, "w[layer]", "x[+0]")
      .copy("spill", 2, "x[+0]", "stash[layer]");
  tiny.block("backward", {{3, 1}, {4, 1}}).copy("fetch", 3, "stash[layer]", "back[+0]");
  tiny.copy("step", 0, "back[+0]", "dx[+0]");
  tiny.call("gather", 0);
  for (std::int32_t layer = 0; layer < layers; ++layer) {
    if (layer + 1 < layers) tiny.call("gather", layer + 1);
    tiny.call("forward", layer);
  }
  for (std::int32_t layer = layers; layer-- > 0;) tiny.call("backward", layer);
  return tiny.schedule;
}

// The gather of a layer is the second last before its forward, and the last before that of the last
// layer.
TEST(Depend, AnEdgeOfTheLayerServesTheLastLayerToo) {
  const std::string edges = derived(layered(8));
  EXPECT_NE(edges.find("forward.step: gather.gather@layer-2"), std::string::npos) << edges;
  EXPECT_EQ(edges.find("gather.gather@-"), std::string::npos) << edges;
}

TEST(Depend, TheWindowFindsWhatTheWholeFinds) {
  const Schedule small = layered(8);
  const Schedule large = layered(40);
  ASSERT_EQ(window(small.train).size(), small.train.size()) << "eight layers are looked at whole";
  ASSERT_LT(window(large.train).size(), large.train.size() / 4);
  EXPECT_EQ(derived(large), derived(small));
  Schedule proven = large;
  depend(proven);
  EXPECT_EQ(format_diagnostics(verify(proven)), "");
}

// Every tenth layer does something that no layer in the window does.
TEST(Depend, TheWholeFindsWhatTheWindowDoesNot) {
  Tiny tiny;
  tiny.buffer("a").buffer("b").block("plain", {{0, 1}}).fill("w", 0, "a[+0]");
  tiny.block("tenth", {{1, 1}}).copy("x", 1, "a[-1]", "b[+0]");
  for (std::int32_t layer = 0; layer < 40; ++layer) {
    tiny.call("plain", layer);
    if (layer % 10 == 9 && layer < 35) tiny.call("tenth", layer);
  }
  EXPECT_EQ(derived(tiny.schedule), "plain.w: tenth.x@-1\ntenth.x: plain.w@-1\n");
}

TEST(Window, KeepsTheEndsOfLongRuns) {
  std::vector<Call> calls;
  for (std::int32_t layer = 0; layer < 10; ++layer) calls.push_back({0, layer, 0, 0});
  EXPECT_EQ(window(calls), (std::vector<std::size_t>{0, 1, 2, 3, 6, 7, 8, 9}));
  calls.resize(8);
  EXPECT_EQ(window(calls).size(), 8u);
}

// Blocks of a few layers in the middle have calls too, beside those before and after them.
TEST(Window, KeepsTheEndsOfEachBlock) {
  std::vector<Call> calls;
  const std::vector<std::size_t> expected{0,  1,  2,  8,  9,  10, 11, 12,
                                          28, 29, 30, 31, 32, 33, 38, 39};
  for (std::int32_t layer = 0; layer < 40; ++layer) {
    calls.push_back({layer < 10 ? 0 : (layer < 30 ? 1 : (layer < 31 ? 2 : 3)), layer, 0, layer});
  }
  EXPECT_EQ(window(calls), expected);
}

// The first layer of a segment overlaps the last layer of another, so both are kept. What these
// layers do outside segments is beside them.
TEST(Window, KeepsBothEndsOfTheSegmentsThatItKeeps) {
  std::vector<Call> calls;
  for (std::int32_t layer = 0; layer < 40; ++layer) calls.push_back({0, layer, 0, 0});
  for (std::int32_t layer = 0; layer < 40; ++layer) calls.push_back({1, layer, 0, layer / 4});
  std::vector<std::size_t> expected;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (i % 40 < 8 || i % 40 >= 32) expected.push_back(i);
  }
  EXPECT_EQ(window(calls), expected);
}

// Segments in the middle have no layer between their first and last one.
TEST(Window, KeepsEverySuccessionOfBlocks) {
  std::vector<Call> calls;
  std::int32_t layer = 0;
  for (std::int32_t segment = 0; segment < 40; ++segment) {
    const bool middle = segment >= 10 && segment < 30;
    for (const std::int32_t block : {0, 1, 2}) {
      if (block == 1 && middle) continue;
      calls.push_back({block, layer++, 0, segment});
    }
  }
  std::set<std::int32_t> kept;
  for (const std::size_t i : window(calls)) kept.insert(calls[i].segment);
  EXPECT_EQ(kept, (std::set<std::int32_t>{0, 1, 9, 10, 11, 38, 39}));
}

// Somebody emptied the block, or a lowering had nothing to do there.
TEST(Depend, TakesBlocksWithoutOps) {
  test::Tiny tiny;
  tiny.buffer("a").block("empty").block("one").fill("w", 0, "a[0]");
  tiny.call("empty").call("one").call("empty");
  depend(tiny.schedule);
  EXPECT_TRUE(verify(tiny.schedule).empty());
}

}  // namespace
}  // namespace fpdt
