// S3xx: versions and races, one damage at a time.
#include <gtest/gtest.h>

#include "fpdt/schedule/verify.h"

#include "golden.h"
#include "tiny.h"

namespace fpdt {
namespace {

using Codes = std::set<std::string>;
using test::Tiny;

Tiny pen() {
  Tiny tiny;
  tiny.buffer("a", 2).buffer("b", 1).block("one");
  return tiny;
}

Codes codes(Tiny& tiny) { return test::codes(tiny.call("one").schedule); }

TEST(Order, ReadOfWhatWasNeverWritten) {
  EXPECT_EQ(codes(pen().copy("x", 0, "a[+0]", "b[+0]")), Codes{"S301"});
  EXPECT_EQ(codes(pen().fill("w", 0, "a[+0]").copy("x", 0, "a[+2]", "b[+0]")), Codes{"S301"});
  EXPECT_EQ(codes(pen().fill("w", 0, "a[+1]").copy("x", 0, "a[-1]", "b[+0]")), Codes{"S301"});
}

TEST(Order, InputsHoldTheirVersionsFromTheStart) {
  Tiny tiny;
  tiny.buffer("a", 2, 4, Role::input).buffer("b").block("one");
  EXPECT_EQ(codes(tiny.copy("x", 0, "a[1]", "b[+0]")), Codes{});
  EXPECT_EQ(test::codes(tiny.copy("y", 0, "a[2]", "b[+1]").schedule), Codes{"S301"});
}

TEST(Order, ReadOfAVersionThatWasOverwritten) {
  EXPECT_EQ(codes(pen().fill("w", 0, "a[+0]").fill("v", 0, "a[+2]").copy("x", 0, "a[+0]", "b[+0]")),
            Codes{"S302"});
  Schedule schedule = test::golden("fpdt_backward.json");
  test::body_of<AttentionBackward>(schedule, "backward", "attn.2.2").kv.version.offset = 0;
  EXPECT_EQ(test::codes(schedule), Codes{"S302"});
}

TEST(Order, ReadOfRowsThatWereNotWritten) {
  EXPECT_EQ(codes(pen().fill("w", 0, "a[+0] rows 0:3").copy("x", 0, "a[+0]", "b[+0]")),
            Codes{"S303"});
  EXPECT_EQ(codes(pen()
                      .fill("w", 0, "a[+0] rows 0:1")
                      .fill("v", 0, "a[+0] rows 2:4")
                      .copy("x", 0, "a[+0]", "b[+0]")),
            Codes{"S303"});
  EXPECT_EQ(codes(pen()
                      .fill("w", 0, "a[+0] rows 0:2")
                      .fill("v", 0, "a[+0] rows 2:4")
                      .copy("x", 0, "a[+0]", "b[+0]")),
            Codes{});
}

TEST(Order, ReadBeforeItsWriteIsDone) {
  EXPECT_EQ(codes(pen().fill("w", 0, "a[+0]").copy("x", 1, "a[+0]", "b[+0]")), Codes{"S304"});
  EXPECT_EQ(codes(pen().fill("w", 0, "a[+0]").copy("x", 1, "a[+0]", "b[+0]").after("w")), Codes{});
  EXPECT_EQ(codes(pen()
                      .fill("w", 0, "a[+0] rows 0:2")
                      .fill("v", 1, "a[+0] rows 2:4")
                      .copy("x", 1, "a[+0] rows 2:4", "b[+0] rows 0:2")),
            Codes{})
      << "the rows of the other lane are not read";
}

TEST(Order, RowsAreWrittenOnce) {
  EXPECT_EQ(codes(pen().fill("w", 0, "a[+0]").fill("v", 0, "a[+0] rows 3:4")), Codes{"S305"});
}

TEST(Order, AccumulateNeedsAWrite) {
  EXPECT_EQ(codes(pen().fill("b", 0, "b[+0]").copy("x", 0, "b[+0]", "a[+0] +=")), Codes{"S306"});
  EXPECT_EQ(codes(pen()
                      .fill("b", 0, "b[+0]")
                      .fill("w", 0, "a[+0] rows 0:2")
                      .copy("x", 0, "b[+0]", "a[+0] +=")),
            Codes{"S306"});
}

TEST(Order, NothingAccumulatesAfterARead) {
  Tiny tiny = pen().buffer("c");
  tiny.fill("b", 0, "b[+0]").fill("w", 0, "a[+0]").copy("x", 0, "b[+0]", "a[+0] +=");
  tiny.copy("r", 0, "a[+0] rows 0:2", "c[+0] rows 0:2");
  EXPECT_EQ(
      test::codes(
          Tiny(tiny).copy("y", 0, "b[+0] rows 2:4", "a[+0] rows 2:4 +=").call("one").schedule),
      Codes{})
      << "other rows were read";
  EXPECT_EQ(codes(tiny.copy("y", 0, "b[+0]", "a[+0] +=")), Codes{"S307"});
}

TEST(Order, AccumulatesAreInATotalOrder) {
  Tiny tiny = pen().fill("b", 0, "b[+0]").fill("w", 0, "a[+0]");
  tiny.copy("x", 0, "b[+0]", "a[+0] +=").copy("y", 1, "b[+0]", "a[+0] +=").after("w");
  EXPECT_EQ(codes(tiny), Codes{"S308"});
}

TEST(Order, WriteWaitsForTheVersionBefore) {
  Tiny tiny =
      pen().fill("w", 0, "a[+0]").copy("x", 1, "a[+0]", "b[+0]").after("w").fill("v", 0, "a[+2]");
  EXPECT_EQ(codes(tiny), Codes{"S309"});
  Tiny waits = pen().fill("w", 0, "a[+0]").copy("x", 1, "a[+0]", "b[+0]").after("w");
  EXPECT_EQ(codes(waits.fill("v", 0, "a[+2]").after("x")), Codes{});
}

TEST(Order, EveryWriteOfAVersionWaitsForTheOneBefore) {
  Tiny tiny =
      pen().fill("w", 0, "a[+0]").fill("v", 0, "a[+2] rows 0:2").fill("u", 1, "a[+2] rows 2:4");
  EXPECT_EQ(codes(tiny), Codes{"S309"});
}

TEST(Order, VersionsOfASlotGrow) {
  EXPECT_EQ(codes(pen().fill("w", 0, "a[+2]").fill("v", 0, "a[+0]")), Codes{"S310"});
  EXPECT_EQ(codes(pen().fill("w", 0, "a[-1]")), Codes{"S310"});
}

TEST(Order, OnlyTheOptimizerWorksInPlace) {
  EXPECT_EQ(codes(pen().fill("w", 0, "a[+0]").copy("x", 0, "a[+0]", "a[+2]")), Codes{"S311"});
}

TEST(Order, EdgesReachEarlierCalls) {
  Tiny tiny;
  tiny.buffer("a").buffer("b").block("one", {{0, 1}, {1, 1}});
  tiny.fill("w", 0, "a[+0]").copy("x", 1, "a[+0]", "b[+0]").after("w");
  EXPECT_EQ(test::codes(Tiny(tiny).call("one").call("one").schedule), Codes{"S309"});
  tiny.schedule.blocks[0].ops[0].after.push_back({0, 1, 1});
  EXPECT_EQ(test::codes(Tiny(tiny).call("one").call("one").call("one").schedule), Codes{});
  tiny.schedule.blocks[0].ops[0].after[0].calls_back = 2;
  EXPECT_EQ(test::codes(tiny.call("one").call("one").call("one").schedule), Codes{"S309"})
      << "too far back";
}

TEST(Order, EdgesOfALayerReachItsCallOnly) {
  Tiny tiny;
  tiny.buffer("a", 2).buffer("b", 2).block("one").fill("w", 0, "a[layer]");
  tiny.block("two").copy("x", 1, "a[layer]", "b[layer]").after("one.w@layer-2");
  tiny.call("one", 0).call("one", 1).call("two", 0);
  EXPECT_EQ(test::codes(Tiny(tiny).call("two", 1).schedule), Codes{});
  tiny.schedule.blocks[1].ops[0].after[0].calls_back = 1;
  EXPECT_EQ(test::codes(Tiny(tiny).schedule), Codes{"S304"}) << "too far back";
}

TEST(Order, EvaluateIsCheckedToo) {
  Tiny tiny = pen().fill("w", 0, "a[+0]").block("two").copy("x", 0, "a[+0]", "b[+0]");
  tiny.call("one").call("two");
  EXPECT_EQ(test::codes(tiny.schedule), Codes{});
  tiny.schedule.evaluate = {{1, 0, 0, 0}};
  EXPECT_EQ(test::codes(tiny.schedule), Codes{"S301"});
}

// Whoever asks would otherwise get the loss of the step before.
TEST(Order, AnEvaluationHasAResult) {
  Tiny tiny;
  tiny.buffer("loss").buffer("b").block("one").fill("w", 0, "loss[+0]");
  tiny.block("two").fill("x", 0, "b[+0]").call("one");
  tiny.schedule.buffers[0].role = Role::output;
  tiny.schedule.evaluate = {{0, 0, 0, 0}};
  EXPECT_EQ(test::codes(tiny.schedule), Codes{});
  tiny.schedule.evaluate = {{1, 0, 0, 0}};
  EXPECT_EQ(test::codes(tiny.schedule), Codes{"S604"});
}

}  // namespace
}  // namespace fpdt
