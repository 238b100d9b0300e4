// Versions and positions of calls.
#include "fpdt/schedule/expand.h"

#include <gtest/gtest.h>

#include "tiny.h"

namespace fpdt {
namespace {

test::Tiny two_blocks() {
  test::Tiny tiny;
  tiny.buffer("a", 2).buffer("b", 8);
  tiny.block("one", {{0, 2}}).fill("x", 0, "a[+0]").fill("y", 1, "a[+1]");
  tiny.block("two").copy("z", 1, "a[-1]", "b[2*layer+1]").after("one.y@-1").after("two.z@-2");
  return tiny;
}

TEST(Expansion, BasesAdvanceAtEachCall) {
  const test::Tiny tiny = two_blocks();
  const Program program(tiny.schedule);
  Expansion expansion(program);
  const PlainUse& first = program.blocks[0].ops[0].uses[0];
  const PlainOp& copy = program.blocks[1].ops[0];
  expansion.begin({0, 0, 0, 0});
  EXPECT_EQ(expansion.version(first), 0);
  expansion.begin({1, 3, 0, 0});
  EXPECT_EQ(expansion.version(copy.uses[0]), 1);
  EXPECT_EQ(expansion.version(copy.uses[1]), 7);
  expansion.begin({0, 0, 0, 0});
  EXPECT_EQ(expansion.version(first), 2);
}

TEST(Expansion, PositionsCountPerLane) {
  const test::Tiny tiny = two_blocks();
  const Program program(tiny.schedule);
  Expansion expansion(program);
  const PlainOp& copy = program.blocks[1].ops[0];
  expansion.begin({1, 0, 0, 0});
  EXPECT_EQ(expansion.position(copy), 0);
  EXPECT_EQ(expansion.position(copy.after[0]), -1) << "block one was not called yet";
  expansion.begin({0, 0, 0, 0});
  expansion.begin({1, 0, 0, 0});
  EXPECT_EQ(expansion.position(copy), 2);
  EXPECT_EQ(expansion.position(copy.after[0]), 1);
  EXPECT_EQ(expansion.position(copy.after[1]), -1) << "block two was called once before";
  expansion.begin({1, 0, 0, 0});
  EXPECT_EQ(expansion.position(copy.after[1]), 0);
}

TEST(Expansion, RowsAreResolved) {
  test::Tiny tiny;
  tiny.buffer("a", 1, 8).block("one").fill("x", 0, "a[+0] rows 2:").fill("y", 0, "a[+1] rows 2:5");
  const Program program(tiny.schedule);
  EXPECT_EQ(program.blocks[0].ops[0].uses[0].rows, 6);
  EXPECT_EQ(program.blocks[0].ops[1].uses[0].rows, 3);
}

}  // namespace
}  // namespace fpdt
