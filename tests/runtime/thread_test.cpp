// Ranks as threads, without a backend.
#include "fpdt/comm/thread.h"

#include <atomic>
#include <chrono>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "fpdt/base/error.h"
#include "fpdt/runtime/collective.h"
#include "fpdt/runtime/communicator.h"
#include "fpdt/runtime/view.h"

namespace fpdt {
namespace {

TEST(RunRanks, CallsEachRankOnce) {
  std::vector<std::atomic<int>> calls(5);
  run_ranks(5, [&](Communicator& communicator) {
    EXPECT_EQ(communicator.ranks(), 5);
    EXPECT_EQ(communicator.local_ranks(), 5);
    ++calls[static_cast<std::size_t>(communicator.rank())];
  });
  for (const std::atomic<int>& count : calls) EXPECT_EQ(count, 1);
}

TEST(RunRanks, BarrierHoldsEverybody) {
  std::atomic<int> arrived{0};
  std::atomic<int> early{0};
  run_ranks(4, [&](Communicator& communicator) {
    for (int round = 1; round <= 50; ++round) {
      ++arrived;
      communicator.barrier();
      if (arrived < 4 * round) ++early;
      communicator.barrier();
    }
  });
  EXPECT_EQ(early, 0);
}

TEST(RunRanks, RethrowsTheFirstErrorAndWakesWhoWaits) {
  std::atomic<int> woken{0};
  try {
    run_ranks(4, [&](Communicator& communicator) {
      if (communicator.rank() == 2) throw std::runtime_error("first");
      try {
        communicator.barrier();
      } catch (const PeerError&) {
        ++woken;
        throw std::runtime_error("later");
      }
    });
    FAIL() << "no error";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "first");
  }
  EXPECT_EQ(woken, 3);
}

TEST(RunRanks, DeadlineOfABarrier) {
  EXPECT_THROW(run_ranks(2,
                         [](Communicator& communicator) {
                           if (communicator.rank() == 0) communicator.barrier();
                         },
                         {.deadline = std::chrono::milliseconds(20)}),
               PeerError);
}

// Eight ranks as halves (0-3, 4-7) and as pairs across them, on two lanes at once.
TEST(ThreadCommunicator, GroupsAndLanesDoNotMix) {
  Schedule schedule;
  schedule.ranks = 8;
  schedule.groups = {{"half", 4, 1, {0, {4, 0, 4, 2}}}, {"pair", 2, 4, {0, {1, 0, 1, 4}}}};
  Buffer buffer;
  buffer.shape = {1};
  schedule.buffers = {buffer, buffer};
  const Target target{{1, {}}, false};
  schedule.blocks.push_back({"step", {}, {}});
  schedule.blocks[0].ops.push_back(
      {"halves", {LaneKind::comm, 0}, AllReduce{"half", {{0, {}}}, {target}}, {}});
  schedule.blocks[0].ops.push_back(
      {"pairs", {LaneKind::comm, 1}, AllReduce{"pair", {{0, {}}}, {target}}, {}});
  const Program program(schedule);

  std::atomic<int> wrong{0};
  run_ranks(8, [&](Communicator& communicator) {
    communicator.prepare(program);
    const std::int64_t rank = communicator.rank();
    const auto lane = [&](std::int32_t index, float expected) {
      for (int round = 0; round < 100; ++round) {
        float send = static_cast<float>(rank);
        float received = -1;
        const std::vector<View> views{
            {reinterpret_cast<std::byte*>(&send), 1, Dtype::f32, Access::read},
            {reinterpret_cast<std::byte*>(&received), 1, Dtype::f32, Access::write}};
        HostMover mover;
        communicator.collective(program.blocks[0].ops[static_cast<std::size_t>(index)].op->body,
                                index, views, mover);
        if (received != expected) ++wrong;
      }
    };
    std::thread pairs(lane, 1, static_cast<float>(2 * (rank % 4) + 4));
    lane(0, rank < 4 ? 6.0F : 22.0F);
    pairs.join();
  });
  EXPECT_EQ(wrong, 0);
}

// Fails between the two waits of a meeting.
class FailingMover final : public Mover {
 public:
  Mark mark(std::size_t) override { return nullptr; }
  void await(Mark) override {}
  void receive(const Body&, std::int64_t, std::span<const std::span<const View>>) override {
    throw std::runtime_error("a launch failed");
  }
};

// If a peer fails to take its data, nobody waits for it.
TEST(ThreadCommunicator, WhoFailsInAMeetingEndsItForTheOthers) {
  Schedule schedule;
  schedule.ranks = 3;
  schedule.groups = {{"world", 3, 1, {}}};
  Buffer buffer;
  buffer.shape = {1};
  schedule.buffers = {buffer, buffer};
  schedule.blocks.push_back({"step", {}, {}});
  schedule.blocks[0].ops.push_back(
      {"sum", {LaneKind::comm, 0}, AllReduce{"world", {{0, {}}}, {{{1, {}}, false}}}, {}});
  const Program program(schedule);

  std::atomic<int> received{0};
  std::atomic<int> woken{0};
  const auto rank_main = [&](Communicator& communicator) {
    communicator.prepare(program);
    float send = 1;
    float sum = 0;
    const std::vector<View> views{
        {reinterpret_cast<std::byte*>(&send), 1, Dtype::f32, Access::read},
        {reinterpret_cast<std::byte*>(&sum), 1, Dtype::f32, Access::write}};
    const Body& body = program.blocks[0].ops[0].op->body;
    if (communicator.rank() == 1) {
      FailingMover mover;
      communicator.collective(body, 0, views, mover);
    }
    HostMover mover;
    communicator.collective(body, 0, views, mover);
    if (sum == 3) ++received;
    try {
      communicator.collective(body, 0, views, mover);
    } catch (const PeerError&) {
      ++woken;
      throw;
    }
  };
  try {
    run_ranks(3, rank_main);
    FAIL() << "no error";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "a launch failed");
  }
  EXPECT_EQ(received, 2);
  EXPECT_EQ(woken, 2);
}

}  // namespace
}  // namespace fpdt
