// What lanes know of each other through edges between calls.
#include "fpdt/schedule/call_clocks.h"

#include <vector>

#include <gtest/gtest.h>

#include "tiny.h"

namespace fpdt {
namespace {

class Clocks : public testing::Test {
 protected:
  // Positions of lanes 0 and 1, as lane `lane` knows them.
  std::vector<std::int32_t> known(std::int32_t lane) {
    return {clocks.of_lane(lane)[0], clocks.of_lane(lane)[1]};
  }

  test::Tiny tiny = [] {
    test::Tiny made;
    made.buffer("a").block("one").fill("x", 0, "a[0]").fill("y", 1, "a[0]");
    made.block("two").fill("z", 1, "a[0]");
    return made;
  }();
  Program program{tiny.schedule};
  CallClocks clocks{program, {1, 0}};
  using Known = std::vector<std::int32_t>;
};

TEST_F(Clocks, AnOpKnowsWhatTheAwaitedOneKnew) {
  clocks.begin({0});
  clocks.complete(0, 0, 0);
  clocks.wait(1, {0, 0, 0});  // x, in the same call
  clocks.complete(1, 1, 0);
  EXPECT_EQ(known(1), (Known{0, 0}));
  EXPECT_EQ(known(0), (Known{0, -1}));
  clocks.begin({0});
  clocks.wait(0, {0, 1, 1});  // y, one call back
  clocks.complete(0, 0, 1);
  EXPECT_EQ(known(0), (Known{1, 0}));
}

TEST_F(Clocks, AnEdgeToNoCallIsVoid) {
  clocks.begin({1});
  clocks.wait(1, {0, 0, 1});  // block one was not called
  clocks.complete(1, 0, 0);
  EXPECT_EQ(known(1), (Known{-1, 0}));
  clocks.begin({0});
  clocks.wait(0, {0, 0, 1});  // this is its first call
  clocks.complete(0, 0, 0);
  EXPECT_EQ(known(0), (Known{0, -1}));
}

TEST_F(Clocks, CallsOfOtherBlocksCountFromTheLatest) {
  for (std::int32_t call = 0; call < 3; ++call) {
    clocks.begin({0});
    clocks.complete(0, 0, call);
  }
  clocks.begin({1});
  clocks.wait(1, {0, 0, 2});
  EXPECT_EQ(known(1), (Known{1, -1})) << "the second latest of three";
  clocks.wait(1, {0, 0, 1});
  EXPECT_EQ(known(1), (Known{2, -1}));
}

TEST_F(Clocks, AnEdgeOfALayerMeansItsCallAmongTheLast) {
  for (std::int32_t call = 0; call < 3; ++call) {
    clocks.begin({0, call});
    clocks.complete(0, 0, call);
  }
  clocks.begin({1, 0});
  clocks.wait(1, {0, 0, 1, true});
  EXPECT_EQ(known(1), (Known{-1, -1})) << "layer 0 is not the last";
  clocks.begin({1, 1});
  clocks.wait(1, {0, 0, 1, true});
  EXPECT_EQ(known(1), (Known{-1, -1})) << "nor is layer 1";
  clocks.begin({1, 2});
  clocks.wait(1, {0, 0, 1, true});
  EXPECT_EQ(known(1), (Known{2, -1}));
}

}  // namespace
}  // namespace fpdt
