// Lanes run in parallel, each in order, and wait for each other only where an edge says so.
#include "fpdt/cpu/lanes.h"

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace fpdt {
namespace {

const Op kOp{"noop", {}, Fill{}, {}};

Lanes::Shape shape(std::int32_t lanes, bool spin) {
  return {.lanes = lanes, .views = 1, .waits = 2, .spin = spin};
}

void ignore(std::exception_ptr) {}

// Launches one op whose view holds `number`.
void launch(Lanes& lanes, std::int32_t lane, std::int64_t number, std::vector<Event> waits = {}) {
  const View view{nullptr, number, Dtype::f32, Access::read};
  lanes.launch({&kOp, lane, std::span(&view, 1), waits, nullptr});
}

class LanesTest : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Waiting, LanesTest, testing::Bool(),
                         [](const auto& one) { return one.param ? "Spins" : "Sleeps"; });

TEST_P(LanesTest, KeepTheOrderOfALaneBeyondTheRing) {
  std::vector<std::int64_t> seen;
  Lanes lanes(
      shape(1, GetParam()),
      [&](std::int32_t, const Op&, std::span<const View> views) {
        seen.push_back(views[0].elements);
      },
      ignore);
  for (int step = 0; step < 2; ++step) {
    seen.clear();
    for (std::int64_t i = 0; i < 5000; ++i) launch(lanes, 0, i);
    lanes.synchronise();
    ASSERT_EQ(seen.size(), 5000U);
    for (std::int64_t i = 0; i < 5000; ++i) ASSERT_EQ(seen[static_cast<std::size_t>(i)], i);
  }
}

TEST_P(LanesTest, WaitForTheEventsTheyName) {
  // Lane 1 reads what lane 0 wrote, back and forth. The variables are plain, so a missing wait is a
  // data race.
  std::int64_t left = 0;
  std::int64_t right = 0;
  std::int64_t mistakes = 0;
  Lanes lanes(
      shape(2, GetParam()),
      [&](std::int32_t lane, const Op&, std::span<const View> views) {
        const std::int64_t i = views[0].elements;
        if (lane == 0) {
          mistakes += right != i;
          left = i + 1;
        } else {
          mistakes += left != i + 1;
          right = i + 1;
        }
      },
      ignore);
  for (int step = 0; step < 2; ++step) {
    left = right = 0;
    for (std::int32_t i = 0; i < 1100; ++i) {
      launch(lanes, 0, i, i == 0 ? std::vector<Event>{} : std::vector<Event>{{1, i - 1}});
      launch(lanes, 1, i, {{0, i}});
    }
    lanes.synchronise();
    EXPECT_EQ(right, 1100);
  }
  EXPECT_EQ(mistakes, 0);
}

// Each op waits until the other has begun, so only lanes that run in parallel get through.
TEST_P(LanesTest, RunBesideEachOther) {
  std::atomic<int> begun{0};
  Lanes lanes(
      shape(2, GetParam()),
      [&](std::int32_t, const Op&, std::span<const View>) {
        ++begun;
        begun.notify_all();
        for (int seen = begun; seen < 2; seen = begun) begun.wait(seen);
      },
      ignore);
  launch(lanes, 0, 0);
  launch(lanes, 1, 0);
  lanes.synchronise();
  EXPECT_EQ(begun, 2);
}

// launch() returns while the op is still running.
TEST_P(LanesTest, LaunchDoesNotWait) {
  std::atomic<bool> released{false};
  Lanes lanes(
      shape(1, GetParam()),
      [&](std::int32_t, const Op&, std::span<const View>) { released.wait(false); }, ignore);
  launch(lanes, 0, 0);
  released = true;
  released.notify_all();
  lanes.synchronise();
}

TEST_P(LanesTest, FirstErrorIsToldAtOnceAndRethrown) {
  std::atomic<std::int64_t> runs{0};
  std::atomic<int> told{0};
  Lanes lanes(
      shape(2, GetParam()),
      [&](std::int32_t lane, const Op&, std::span<const View> views) {
        ++runs;
        if (lane == 0 && views[0].elements == 3) throw std::runtime_error("third op");
      },
      [&](std::exception_ptr) { ++told; });
  for (std::int32_t i = 0; i < 10; ++i) {
    launch(lanes, 0, i);
    launch(lanes, 1, i, {{0, i}});  // no op waits for ever
  }
  EXPECT_THROW(
      {
        try {
          lanes.synchronise();
        } catch (const std::runtime_error& error) {
          EXPECT_STREQ(error.what(), "third op");
          throw;
        }
      },
      std::runtime_error);
  EXPECT_EQ(told, 1);
  EXPECT_GE(runs, 4);  // the ops of lane 0
  EXPECT_LE(runs, 7);  // and the three of lane 1 before the error
  launch(lanes, 0, 0);
  EXPECT_THROW(lanes.synchronise(), std::runtime_error);
  EXPECT_LE(runs, 7);
}

TEST_P(LanesTest, IntervalsFollowTheOrder) {
  Lanes lanes(
      shape(2, GetParam()), [](std::int32_t, const Op&, std::span<const View>) {}, ignore);
  std::vector<Interval> intervals(2);
  const std::vector<Event> wait{{0, 0}};
  lanes.launch({&kOp, 0, {}, {}, &intervals[0]});
  lanes.launch({&kOp, 1, {}, wait, &intervals[1]});
  lanes.synchronise();
  EXPECT_GT(intervals[0].begin, 0);
  EXPECT_LE(intervals[0].begin, intervals[0].end);
  EXPECT_LE(intervals[0].end, intervals[1].begin);
}

}  // namespace
}  // namespace fpdt
