// S4xx: offsets and shared bytes.
#include <gtest/gtest.h>

#include "fpdt/schedule/verify.h"

#include "golden.h"
#include "tiny.h"

namespace fpdt {
namespace {

using Codes = std::set<std::string>;
using test::Tiny;

// a and b share bytes; c has its own.
Tiny overlapping_pen() {
  Tiny tiny;
  tiny.buffer("a").offset(0).buffer("b").offset(0).buffer("c").offset(512).block("one");
  return tiny;
}

Codes placement_codes(Tiny& tiny) { return test::codes(tiny.call("one").schedule); }

TEST(Placement, AllOrNoneOfASpace) {
  Schedule schedule = test::golden("tied_head.json");
  test::buffer_of(schedule, "x").offset = kUnplaced;
  EXPECT_EQ(test::codes(schedule), Codes{"S401"});
  for (Buffer& buffer : schedule.buffers) buffer.offset = kUnplaced;
  EXPECT_EQ(test::codes(schedule), Codes{});
}

TEST(Placement, OffsetsAreAligned) {
  Schedule schedule = test::golden("tied_head.json");
  test::buffer_of(schedule, "x").offset += 64;
  EXPECT_EQ(test::codes(schedule), Codes{"S402"});
  test::buffer_of(schedule, "x").offset = -256;
  EXPECT_EQ(test::codes(schedule), Codes{"S402"});
}

TEST(Placement, StateSharesWithNothing) {
  Schedule schedule = test::golden("tied_head.json");
  test::buffer_of(schedule, "dlogits").offset = test::buffer_of(schedule, "master").offset;
  EXPECT_EQ(test::codes(schedule).count("S403"), 1u);
}

TEST(Placement, LifetimesInTurnMayShare) {
  Tiny tiny =
      overlapping_pen().fill("w", 0, "a[+0]").copy("x", 0, "a[+0]", "c[+0]").fill("v", 0, "b[+0]");
  EXPECT_EQ(placement_codes(tiny.copy("y", 0, "b[+0]", "c[+1]")), Codes{});
}

TEST(Placement, WriteWaitsForWhatSharesItsBytes) {
  Tiny tiny = overlapping_pen().fill("w", 0, "a[+0]").copy("x", 1, "a[+0]", "c[+0]").after("w");
  EXPECT_EQ(test::codes(Tiny(tiny).fill("v", 0, "b[+0]").call("one").schedule), Codes{"S404"});
  EXPECT_EQ(placement_codes(tiny.fill("v", 0, "b[+0]").after("x")), Codes{});
}

TEST(Placement, LaterWritesOfTheVersionWaitToo) {
  Tiny tiny = overlapping_pen()
                  .fill("w", 0, "a[+0]")
                  .fill("v", 0, "b[+0] rows 0:2")
                  .fill("u", 1, "b[+0] rows 2:4");
  EXPECT_EQ(placement_codes(tiny), Codes{"S309"});
}

TEST(Placement, SharedBytesDestroyContents) {
  Tiny read =
      overlapping_pen().fill("w", 0, "a[+0]").fill("v", 0, "b[+0]").copy("x", 0, "a[+0]", "c[+0]");
  EXPECT_EQ(placement_codes(read), Codes{"S405"});
  Tiny write = overlapping_pen()
                   .fill("w", 0, "a[+0] rows 0:2")
                   .fill("v", 0, "b[+0]")
                   .fill("u", 0, "a[+0] rows 2:4");
  EXPECT_EQ(placement_codes(write), Codes{"S405"});
}

TEST(Placement, AnOpDoesNotOverwriteWhatItReads) {
  EXPECT_EQ(placement_codes(overlapping_pen().fill("w", 0, "a[+0]").copy("x", 0, "a[+0]", "b[+0]")),
            Codes{"S407"});
}

TEST(Placement, EachTurnIsChecked) {
  Tiny tiny;
  tiny.buffer("a").offset(0).buffer("b").offset(0).block("one", {{0, 1}, {1, 1}});
  tiny.fill("w", 0, "a[+0]").fill("v", 1, "b[+0]").after("w");
  EXPECT_EQ(test::codes(Tiny(tiny).call("one").schedule), Codes{});
  EXPECT_EQ(test::codes(Tiny(tiny).call("one").call("one").schedule), Codes{"S404"})
      << "the second w does not wait for the first v";
}

TEST(Placement, ShiftedOffsetsOfLiveSlotsAreFound) {
  Schedule schedule = test::golden("fpdt_backward.json");
  test::buffer_of(schedule, "kv").offset = test::buffer_of(schedule, "q_dout").offset + 256;
  const Codes found = test::codes(schedule);
  EXPECT_TRUE(found.count("S404") + found.count("S405") > 0);
}

}  // namespace
}  // namespace fpdt
