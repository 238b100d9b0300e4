// The waits of each access, worked out by hand.
#include "fpdt/schedule/hazards.h"

#include <gtest/gtest.h>

#include "tiny.h"

namespace fpdt {
namespace {

using test::Tiny;
using Required = std::vector<std::vector<Hazards::Position>>;

// The waits of every op: [op][lane]. Leaves out calls whose numbers are in [from, to).
Required required(const Schedule& schedule, std::size_t from = 0, std::size_t to = 0) {
  const Program program(schedule);
  Expansion expansion(program);
  Hazards hazards(program);
  Required all;
  for (std::size_t i = 0; i < schedule.train.size(); ++i) {
    expansion.begin(schedule.train[i]);
    if (i >= from && i < to) {
      hazards.leave_out();
      continue;
    }
    for (const PlainOp& op :
         program.blocks[static_cast<std::size_t>(schedule.train[i].block)].ops) {
      all.emplace_back(program.lanes.size());
      hazards.issue(op, expansion, all.back().data());
    }
  }
  return all;
}

TEST(Hazards, AReadWaitsForItsValueAndAWriteForItsSlot) {
  Tiny tiny;
  tiny.buffer("a").buffer("b").block("one").fill("w", 0, "a[+0]").copy("x", 1, "a[+0]", "b[+0]");
  tiny.fill("v", 0, "a[+1]").call("one");
  EXPECT_EQ(required(tiny.schedule), (Required{{-1, -1}, {0, -1}, {0, 0}}));
}

TEST(Hazards, ARingGivesCredit) {
  Tiny tiny;
  tiny.buffer("a", 2).buffer("b").block("one").fill("w", 0, "a[+0]").fill("v", 0, "a[+1]");
  tiny.copy("x", 1, "a[+0]", "b[+0]").fill("u", 0, "a[+2]").fill("t", 0, "a[+3]").call("one");
  EXPECT_EQ(required(tiny.schedule), (Required{{-1, -1}, {-1, -1}, {0, -1}, {0, 0}, {1, -1}}));
}

TEST(Hazards, OnlyRowsThatMeetAreAwaited) {
  Tiny tiny;
  tiny.buffer("a").buffer("b").block("one").fill("w", 0, "a[+0]");
  tiny.fill("v", 1, "a[+0] rows 1:2 +=").fill("u", 2, "a[+0] rows 2:4 +=");
  tiny.copy("first", 3, "a[+0] rows 0:1", "b[+0] rows 0:1");
  tiny.copy("second", 3, "a[+0] rows 1:3", "b[+0] rows 1:3");
  tiny.copy("last", 3, "a[+0] rows 3:4", "b[+0] rows 3:4").call("one");
  const Required all = required(tiny.schedule);
  EXPECT_EQ(all[1], (Required::value_type{0, -1, -1, -1}));
  EXPECT_EQ(all[3], (Required::value_type{0, -1, -1, -1}));
  EXPECT_EQ(all[4], (Required::value_type{-1, 0, 0, -1}));
  EXPECT_EQ(all[5], (Required::value_type{-1, -1, 0, -1}));
}

TEST(Hazards, LaterRowsOfAVersionWaitForTheVersionBefore) {
  Tiny tiny;
  tiny.buffer("a").buffer("b").block("one").fill("w", 0, "a[+0]").copy("x", 1, "a[+0]", "b[+0]");
  tiny.fill("v", 2, "a[+1] rows 0:2").copy("y", 3, "a[+1] rows 0:2", "b[+1] rows 0:2");
  tiny.fill("u", 2, "a[+1] rows 2:4").call("one");
  // y needs no wait: it reads other rows of the same version.
  EXPECT_EQ(required(tiny.schedule).back(), (Required::value_type{0, 0, -1, -1}));
}

// Accesses that began in left-out calls count as complete; later ones do not.
TEST(Hazards, VersionsAreTakenUpAfterAGap) {
  Tiny tiny;
  tiny.buffer("a").buffer("b").block("old").fill("o", 0, "a[0]").block("new").fill("w", 0, "a[1]");
  tiny.block("more").fill("v", 1, "a[1] +=").copy("x", 0, "a[1]", "b[0]");
  tiny.call("old").call("new").call("more");
  const Required whole = required(tiny.schedule);
  const Required gap = required(tiny.schedule, 1, 2);
  ASSERT_EQ(whole.size(), 4U);
  ASSERT_EQ(gap.size(), 3U);
  EXPECT_EQ(whole[2], (Required::value_type{1, -1}));
  EXPECT_EQ(gap[1], (Required::value_type{-1, -1}));
  EXPECT_EQ(whole[3], (Required::value_type{-1, 0}));
  EXPECT_EQ(gap[2], (Required::value_type{-1, 0}));
}

}  // namespace
}  // namespace fpdt
