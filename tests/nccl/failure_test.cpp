// Whatever goes wrong ends every rank within its limits, and leaves nothing behind.
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/cuda/memory.h"
#include "fpdt/cuda/status.h"
#include "fpdt/nccl/communicator.h"

#include "fake_runtime.h"
#include "processes.h"

namespace fpdt {
namespace {

using std::chrono::milliseconds;

// Limits that are soon over.
NcclOptions hurried(std::int64_t rank) {
  NcclOptions options = on_fake(rank);
  options.deadline = milliseconds(150);
  options.forming = milliseconds(300);
  options.abort_limit = milliseconds(300);
  return options;
}

// An all-to-all of everybody, one of pairs, and an all-gather of pairs, on one lane.
class Exchange {
 public:
  explicit Exchange(std::int64_t ranks) {
    schedule_.ranks = ranks;
    schedule_.groups = {{"world", ranks, 1, {}}, {"pair", 2, 1, {0, 2, 0, 2, ranks / 2}}};
    Buffer whole, half;
    whole.shape = {ranks};
    half.shape = {ranks / 2};
    schedule_.buffers = {whole, whole, half};
    schedule_.blocks.push_back({"step", {}, {}});
    for (const char* group : {"world", "pair"}) {
      schedule_.blocks[0].ops.push_back(
          {group, {LaneKind::comm, 0}, AllToAll{group, {{0, {}}}, {{{1, {}}, false}}}, {}});
    }
    schedule_.blocks[0].ops.push_back(
        {"gather", {LaneKind::comm, 0}, AllGather{"pair", {{2, {}}}, {{{1, {}}, false}}}, {}});
    program_.emplace(schedule_);
  }
  [[nodiscard]] const Program& program() const { return *program_; }

 private:
  Schedule schedule_;
  std::optional<Program> program_;
};

// A rank that exchanges with the others.
class Rank {
 public:
  Rank(const Exchange& exchange, NcclCommunicator& communicator)
      : exchange_(exchange), communicator_(communicator), memory_(Bytes{1024}, "operands") {
    communicator.prepare(exchange.program());
    communicator.warm_up(memory_.bytes());
  }
  // Queues a collective: that of everybody (0), or one of pairs (1, 2).
  void launch(std::size_t op) {
    const auto count = communicator_.ranks();
    const auto sent = op == 2 ? count / 2 : count;
    const std::vector<View> views{{memory_.bytes().data(), sent, Dtype::f32, Access::read},
                                  {memory_.bytes().data() + 512, count, Dtype::f32, Access::write}};
    communicator_.collective(exchange_.program().blocks[0].ops[op].op->body, 0, views, lane_);
  }
  void finish() {
    lane_.synchronise();
    communicator_.settle();
  }
  void step(std::size_t op) {
    launch(op);
    finish();
  }
  [[nodiscard]] const TestLane& lane() const { return lane_; }

 private:
  const Exchange& exchange_;
  NcclCommunicator& communicator_;
  cuda::DeviceMemory memory_;
  TestLane lane_;
};

void expect_nothing_left() {
  EXPECT_EQ(fmt::format("{}", fmt::join(fake::broken_rules(), "; ")), "");
  EXPECT_EQ(fake::open_communicators(), 0);
  EXPECT_EQ(fake::allocated(), 0);
  EXPECT_EQ(fake::events(), 0);
}

// The rank ended with a PeerError whose text has this part.
void expect_peer_error(const std::optional<Error>& outcome, const std::string& part) {
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->code(), ExitCode::peer_lost) << outcome->what();
  EXPECT_NE(std::string(outcome->what()).find(part), std::string::npos) << outcome->what();
}

constexpr const char* kLate = "pair (all_to_all) of ranks 0, 1 on lane comm.0 has not ended 150 ms";

TEST(NcclFailure, ARankThatIsAbsentEndsItsGroup) {
  set_machine(4);
  const Exchange exchange(4);
  const Outcomes outcomes = run_processes(4, hurried, [&](NcclCommunicator& communicator) {
    Rank rank(exchange, communicator);
    rank.step(0);
    if (communicator.rank() != 1) rank.step(1);
  });
  expect_peer_error(outcomes[0], kLate);
  for (const std::size_t other : {1U, 2U, 3U}) EXPECT_FALSE(outcomes[other]);
  EXPECT_EQ(fake::aborts(), 2);  // all that rank 0 has
  expect_nothing_left();
}

// The host is far ahead of the device, and learns of the failure when it launches.
TEST(NcclFailure, AFailureEndsLaunchesToo) {
  set_machine(2);
  const Exchange exchange(2);
  const Outcomes outcomes = run_processes(2, hurried, [&](NcclCommunicator& communicator) {
    Rank rank(exchange, communicator);
    while (communicator.rank() == 0) {
      rank.launch(0);
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  expect_peer_error(outcomes[0], "has not ended 150 ms after it began");
  EXPECT_FALSE(outcomes[1]);
  expect_nothing_left();
}

// The deadline counts from when the device begins: a rank may be busy with its own work before.
TEST(NcclFailure, ItsOwnWorkDoesNotCount) {
  set_machine(2);
  const Exchange exchange(2);
  const Outcomes outcomes = run_processes(2, hurried, [&](NcclCommunicator& communicator) {
    Rank rank(exchange, communicator);
    const auto busy = std::chrono::steady_clock::now() + milliseconds(400);
    fake::enqueue_when(
        static_cast<cudaStream_t>(rank.lane().stream()), {},
        [busy] { return std::chrono::steady_clock::now() > busy; }, [] {});
    rank.step(0);
  });
  for (const std::optional<Error>& outcome : outcomes) {
    EXPECT_FALSE(outcome) << outcome->what();
  }
  expect_nothing_left();
}

// Rank 1 fails by itself. Over a network the others see that its connections break.
TEST(NcclFailure, FarRanksSeeABrokenConnection) {
  set_machine(3, {.far = true});
  const Exchange exchange(2);
  const auto patient = [](std::int64_t rank) {
    NcclOptions options = on_fake(rank);
    options.deadline = milliseconds(100'000);
    return options;
  };
  const Outcomes outcomes = run_processes(2, patient, [&](NcclCommunicator& communicator) {
    Rank rank(exchange, communicator);
    rank.step(0);
    if (communicator.rank() == 1) throw NumericError("the loss is not finite");
    rank.step(0);
  });
  expect_peer_error(outcomes[0], "remote process exited or there was a network error");
  ASSERT_TRUE(outcomes[1]);
  EXPECT_EQ(outcomes[1]->code(), ExitCode::numeric);
  expect_nothing_left();
}

// On the same host only the deadline tells.
TEST(NcclFailure, NearRanksWaitForTheirDeadline) {
  set_machine(2);
  const Exchange exchange(2);
  const Outcomes outcomes = run_processes(2, hurried, [&](NcclCommunicator& communicator) {
    Rank rank(exchange, communicator);
    if (communicator.rank() == 1) throw NumericError("the loss is not finite");
    rank.step(0);
  });
  expect_peer_error(outcomes[0], "has not ended");
  EXPECT_EQ(outcomes[1]->code(), ExitCode::numeric);
  expect_nothing_left();
}

// NCCL reports an error long after the call, while nobody calls it.
TEST(NcclFailure, AnErrorThatComesLate) {
  for (const auto& [failure, code] : {std::pair{ncclRemoteError, ExitCode::peer_lost},
                                      std::pair{ncclInternalError, ExitCode::internal}}) {
    // The third group of rank 0: the others warm it up.
    set_machine(2, {.failing_rank = 0, .failing_group = 3, .failure = failure});
    const Exchange exchange(2);
    const Outcomes outcomes = run_processes(2, hurried, [&](NcclCommunicator& communicator) {
      Rank rank(exchange, communicator);
      rank.step(0);
    });
    ASSERT_TRUE(outcomes[0]);
    EXPECT_EQ(outcomes[0]->code(), code);
    expect_peer_error(outcomes[1], "has not ended");
    expect_nothing_left();
  }
}

// What NCCL says is passed on though the GPU answers nothing any more.
TEST(NcclFailure, AGpuThatFailed) {
  set_machine(2, {.failing_rank = 0, .failing_group = 3, .failure = ncclUnhandledCudaError});
  const Exchange exchange(2);
  const Outcomes outcomes = run_processes(2, hurried, [&](NcclCommunicator& communicator) {
    Rank rank(exchange, communicator);
    if (communicator.rank() == 0) fake::fall_ill(cudaErrorIllegalAddress);
    rank.step(0);
  });
  ASSERT_TRUE(outcomes[0]);
  EXPECT_EQ(outcomes[0]->code(), ExitCode::internal);
  EXPECT_NE(std::string(outcomes[0]->what()).find("NCCL says: "), std::string::npos)
      << outcomes[0]->what();
  expect_nothing_left();
}

// Messages and an all-gather across nodes, of two communicators, wait on one lane, so neither abort
// returns without the other.
TEST(NcclFailure, AllCommunicatorsAreAbortedAtOnce) {
  for (const std::size_t first : {0U, 2U}) {
    set_machine(4);
    const Exchange exchange(4);
    const OnRank rank_main = [&](NcclCommunicator& communicator) {
      Rank rank(exchange, communicator);
      if (communicator.rank() != 0) return;
      rank.launch(first);
      rank.launch(2 - first);
      rank.finish();
    };
    const Outcomes outcomes = run_processes(4, hurried, rank_main, 1);
    EXPECT_EQ(fake::aborts(), 3);
    expect_peer_error(outcomes[0], "has not ended");
    expect_nothing_left();
  }
}

TEST(NcclFailure, AnAbortThatHangsIsGivenUp) {
  set_machine(2, {.hanging_aborts = {0}});
  const Exchange exchange(2);
  std::atomic<int> given_up{0};
  const auto options = [&](std::int64_t rank) {
    NcclOptions own = hurried(rank);
    own.give_up = [&given_up](const Error& cause) {
      ++given_up;
      EXPECT_EQ(cause.code(), ExitCode::peer_lost);
      EXPECT_NE(std::string(cause.what()).find("has not ended"), std::string::npos);
      fake::release();
    };
    return own;
  };
  const Outcomes outcomes = run_processes(2, options, [&](NcclCommunicator& communicator) {
    Rank rank(exchange, communicator);
    if (communicator.rank() == 0) rank.step(0);
  });
  EXPECT_EQ(given_up, 1);
  expect_peer_error(outcomes[0], "has not ended");
  EXPECT_FALSE(outcomes[1]);
  expect_nothing_left();
}

TEST(NcclFailure, GivingUpEndsTheProcessWithTheCode) {
  const auto end = [] {
    set_machine(1, {.hanging_aborts = {0}});
    NcclOptions options = hurried(0);
    options.give_up = nullptr;
    ncclUniqueId id{};
    fake::nccl_api().ncclGetUniqueId(&id);
    nccl::Comms comms(options, 0);
    comms.form(id, 1, "all ranks");
    comms.fail(NumericError("the loss is not finite"));
  };
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(end(), testing::ExitedWithCode(8), "ends at once. the loss is not finite");
}

TEST(NcclFailure, ACallThatHangsIsAborted) {
  set_machine(2);
  const Exchange exchange(2);
  const Outcomes outcomes = run_processes(2, hurried, [&](NcclCommunicator& communicator) {
    Rank rank(exchange, communicator);
    rank.step(0);
    communicator.barrier();
    if (communicator.rank() == 1) return;
    fake::let_calls_hang(0);
    rank.step(0);
  });
  expect_peer_error(outcomes[0], "a call of NCCL has not returned");
  EXPECT_FALSE(outcomes[1]);
  expect_nothing_left();
}

// The queues are full behind a collective whose peer is gone. The launch waits inside the driver,
// and so does every question about events. Only somebody who asks nothing can end that.
TEST(NcclFailure, AFullQueueHidesNoDeadPeer) {
  set_machine(2, {}, 1, 8);
  const Exchange exchange(2);
  std::atomic<int> given_up{0};
  const auto options = [&](std::int64_t rank) {
    NcclOptions own = hurried(rank);
    own.give_up = [&given_up](const Error& cause) {
      ++given_up;
      EXPECT_EQ(cause.code(), ExitCode::peer_lost);
      EXPECT_NE(std::string(cause.what()).find("its queues are full"), std::string::npos);
      fake::lift_queue_limit();
    };
    return own;
  };
  const Outcomes outcomes = run_processes(2, options, [&](NcclCommunicator& communicator) {
    Rank rank(exchange, communicator);
    rank.step(0);
    if (communicator.rank() == 1) return;
    rank.launch(0);
    for (int i = 0; i < 16; ++i) {
      cuda::check(cudaMemcpyAsync(nullptr, nullptr, 0, cudaMemcpyDefault,
                                  static_cast<cudaStream_t>(rank.lane().stream())),
                  "a copy");
    }
    rank.finish();
  });
  EXPECT_EQ(given_up, 1);
  expect_peer_error(outcomes[0], "has not ended");
  EXPECT_FALSE(outcomes[1]);
  expect_nothing_left();
}

TEST(NcclFailure, ARankThatNeverForms) {
  set_machine(3);
  ncclUniqueId id{};
  fake::nccl_api().ncclGetUniqueId(&id);
  const Outcomes outcomes = run_threads(3, [&](int rank) {
    if (rank == 1) return;
    nccl::Comms comms(hurried(rank), rank);
    comms.form(id, 3, "all ranks");
  });
  for (const std::size_t rank : {0U, 2U}) {
    expect_peer_error(outcomes[rank],
                      fmt::format("rank {} waited 300 ms for NCCL (all ranks", rank));
  }
  expect_nothing_left();
}

TEST(NcclFailure, ARankThatNeverPrepares) {
  set_machine(2);
  const Exchange exchange(2);
  const Outcomes outcomes = run_processes(2, hurried, [&](NcclCommunicator& communicator) {
    if (communicator.rank() == 0) communicator.prepare(exchange.program());
  });
  expect_peer_error(outcomes[0], "forming lane comm.0");
  EXPECT_FALSE(outcomes[1]);
  expect_nothing_left();
}

TEST(NcclFailure, ABarrierHasADeadline) {
  set_machine(2);
  const Outcomes outcomes = run_processes(2, hurried, [&](NcclCommunicator& communicator) {
    if (communicator.rank() == 0) communicator.barrier();
  });
  expect_peer_error(outcomes[0], "rank 0 waited 150 ms for the other ranks");
  expect_nothing_left();
}

TEST(NcclFailure, ATooOldLibrary) {
  set_machine(1, {.version = NCCL_VERSION(2, 17, 1)});
  const Outcomes outcomes = run_threads(1, [&](int) { const nccl::Comms comms(on_fake(0), 0); });
  ASSERT_TRUE(outcomes[0]);
  EXPECT_STREQ(outcomes[0]->what(),
               fmt::format("NCCL 2.17.1: expected 2.18.1 or a later NCCL 2 (this program was built "
                           "with the header of {}); install one, or name its folder in "
                           "LD_LIBRARY_PATH",
                           nccl::version_text(NCCL_VERSION_CODE))
                   .c_str());
}

}  // namespace
}  // namespace fpdt
