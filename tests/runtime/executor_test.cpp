// Schedules through the whole stack: executor, CPU backend, and threads as ranks.
#include "fpdt/runtime/executor.h"

#include <atomic>
#include <cstring>
#include <functional>
#include <latch>
#include <map>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "fpdt/base/error.h"
#include "fpdt/comm/solo.h"
#include "fpdt/comm/thread.h"
#include "fpdt/cpu/backend.h"
#include "fpdt/runtime/accounts.h"
#include "fpdt/runtime/backend.h"
#include "fpdt/runtime/communicator.h"

#include "tiny.h"
#include "touched.h"

namespace fpdt {
namespace {

const CpuOptions kOneThread{.threads = 1, .populate = Populate::no};

// Runs `body` on every rank with an executor whose states and inputs are set.
void on_ranks(const Pipeline& pipeline, const VerifiedSchedule& schedule,
              const std::function<void(Executor&, std::int64_t rank)>& body) {
  run_ranks(pipeline.ranks, [&](Communicator& communicator) {
    CpuBackend backend(communicator, kOneThread);
    Executor executor(schedule, backend, communicator);
    const std::int64_t rank = communicator.rank();
    pipeline.fill(
        rank, [&](BufferIndex buffer, std::int64_t slot) { return executor.slot(buffer, slot); });
    body(executor, rank);
  });
}

std::int64_t wrong(const Pipeline& pipeline, const Executor& executor, std::int64_t rank) {
  return pipeline.wrong(
      rank, [&](BufferIndex buffer, std::int64_t slot) { return executor.slot(buffer, slot); });
}

class PipelineTest : public testing::TestWithParam<std::int64_t> {
 protected:
  PipelineTest() : pipeline{.ranks = GetParam()}, schedule(pipeline.build()) {}

  Pipeline pipeline;
  VerifiedSchedule schedule;
};

INSTANTIATE_TEST_SUITE_P(Ranks, PipelineTest, testing::Values(1, 2, 4));

TEST_P(PipelineTest, ComputesWhatItMust) {
  std::atomic<std::int64_t> mistakes{0};
  on_ranks(pipeline, schedule, [&](Executor& executor, std::int64_t rank) {
    for (int step = 0; step < 3; ++step) {
      executor.run(schedule.schedule().train);
      mistakes += wrong(pipeline, executor, rank);
    }
  });
  EXPECT_EQ(mistakes, 0);
}

TEST_P(PipelineTest, RecordsEveryOpInItsPlace) {
  std::vector<Trace> traces(static_cast<std::size_t>(pipeline.ranks));
  on_ranks(pipeline, schedule, [&](Executor& executor, std::int64_t rank) {
    traces[static_cast<std::size_t>(rank)] = executor.record(schedule.schedule().train);
  });
  for (const Trace& trace : traces) {
    EXPECT_EQ(std::ssize(trace.spans), (6 * pipeline.chunks + 3) * pipeline.calls);
    EXPECT_EQ(trace.lanes, (std::vector<std::string>{"compute.0", "h2d.0", "d2h.0", "comm.0"}));
    std::map<std::string, Span> first_call;
    std::vector<std::int64_t> lane_end(trace.lanes.size(), 0);
    for (const Span& span : trace.spans) {
      EXPECT_LE(span.begin, span.end);
      std::int64_t& end = lane_end[static_cast<std::size_t>(span.lane)];
      EXPECT_LE(end, span.begin);
      end = span.end;
      if (span.call == 0) first_call[trace.ops[static_cast<std::size_t>(span.op)]] = span;
    }
    EXPECT_LE(first_call.at("step.fetch.2").end, first_call.at("step.multiply.2").begin);
    EXPECT_LE(first_call.at("step.multiply.2").end, first_call.at("step.exchange.2").begin);
    EXPECT_EQ(find_overrun(trace), "");
    // The input and the result are always live; z_host is whole when the last chunk is stashed.
    EXPECT_GE(peak(*find_curve(trace, "host_pinned")).value,
              pipeline.chunks * pipeline.rows * pipeline.width * 4);
  }
}

TEST_P(PipelineTest, TouchesWhatItWrites) {
  std::vector<std::vector<Account>> accounts(static_cast<std::size_t>(pipeline.ranks));
  on_ranks(pipeline, schedule, [&](Executor& executor, std::int64_t rank) {
    accounts[static_cast<std::size_t>(rank)] =
        account_touched(executor, schedule.schedule().train, [&] {
          pipeline.fill(rank, [&](BufferIndex buffer, std::int64_t slot) {
            return executor.slot(buffer, slot);
          });
        });
  });
  const std::int64_t chunk = pipeline.rows * pipeline.width * 4;
  for (const std::vector<Account>& spaces : accounts) {
    ASSERT_EQ(spaces.size(), 3U);
    for (const Account& account : spaces) {
      EXPECT_EQ(account.difference, "");
      EXPECT_EQ(account.found, account.expected);
    }
    EXPECT_EQ(spaces[0].found.value, 4 * 2 * chunk + 2 * pipeline.width * 4);
    EXPECT_EQ(spaces[1].found.value, pipeline.chunks * chunk);
    EXPECT_EQ(spaces[2].found.value, pipeline.width * 4);
  }
}

TEST_P(PipelineTest, ResidentPagesAreThoseTouched) {
  pipeline.rows = 64;
  pipeline.width = 64;
  pipeline.chunks = 3;
  const VerifiedSchedule large = pipeline.build();
  std::vector<std::vector<Account>> accounts(static_cast<std::size_t>(pipeline.ranks));
  on_ranks(pipeline, large, [&](Executor& executor, std::int64_t rank) {
    executor.run(large.schedule().train);
    accounts[static_cast<std::size_t>(rank)] = account_resident(executor, large.schedule().train);
  });
  for (const std::vector<Account>& spaces : accounts) {
    for (const Account& account : spaces) {
      EXPECT_EQ(account.difference, "");
      EXPECT_GT(account.found.value, 0);
    }
  }
}

TEST(Executor, AlteredOperandIsFoundByTheTouchedAccount) {
  Pipeline pipeline;
  VerifiedSchedule schedule = pipeline.build();
  std::vector<Account> accounts;
  on_ranks(pipeline, schedule, [&](Executor& executor, std::int64_t rank) {
    bool stray = true;
    accounts = account_touched(executor, schedule.schedule().train, [&] {
      pipeline.fill(
          rank, [&](BufferIndex buffer, std::int64_t slot) { return executor.slot(buffer, slot); });
      // Acts like a kernel that writes one byte outside its operand.
      if (stray)
        executor.slot(pipeline.z_host, 3).data()[pipeline.rows * pipeline.width * 4] = std::byte{1};
      stray = false;
    });
  });
  EXPECT_EQ(accounts[1].difference,
            "byte 2048 of the arena, outside of every buffer was written and is no operand");
}

TEST(Executor, SoloRankRunsAlone) {
  Pipeline pipeline{.ranks = 4};
  const VerifiedSchedule schedule = pipeline.build();
  SoloCommunicator communicator(2, 4);
  CpuBackend backend(communicator, kOneThread);
  Executor executor(schedule, backend, communicator);
  pipeline.fill(2,
                [&](BufferIndex buffer, std::int64_t slot) { return executor.slot(buffer, slot); });
  executor.run(schedule.schedule().train);
  // Every absent peer is assumed to send what rank 2 sends: block j of z is block 2 of its own y.
  const std::span<const float> z = floats(executor.slot(pipeline.z_host, 1));
  for (std::int64_t row = 0; row < pipeline.rows; ++row) {
    EXPECT_EQ(z[static_cast<std::size_t>(row * pipeline.width)], pipeline.y(2, 1, 4 + row % 2, 0));
  }
}

TEST(Executor, WritesAndReadsSlots) {
  Pipeline pipeline;
  const VerifiedSchedule schedule = pipeline.build();
  on_ranks(pipeline, schedule, [&](Executor& executor, std::int64_t) {
    std::vector<std::byte> contents(executor.slot(pipeline.weight, 0).size(), std::byte{7});
    executor.write(pipeline.weight, 0, contents);
    std::vector<std::byte> found(contents.size());
    executor.read(pipeline.weight, 0, found);
    EXPECT_EQ(found, contents);
  });
}

// A communicator that fails at a chosen collective.
class Failing final : public Communicator {
 public:
  Failing(Communicator& real, std::int64_t countdown) : real_(real), countdown_(countdown) {}
  [[nodiscard]] std::int64_t rank() const override { return real_.rank(); }
  [[nodiscard]] std::int64_t ranks() const override { return real_.ranks(); }
  [[nodiscard]] std::int64_t local_ranks() const override { return real_.local_ranks(); }
  void prepare(const Program& program) override { real_.prepare(program); }
  void collective(const Body& body, std::int32_t lane, std::span<const View> views,
                  Mover& mover) override {
    if (--countdown_ < 0) throw NumericError("the disk of rank 1 is on fire");
    real_.collective(body, lane, views, mover);
  }
  void barrier() override { real_.barrier(); }
  void abort(std::exception_ptr cause) noexcept override { real_.abort(std::move(cause)); }

 private:
  Communicator& real_;
  std::int64_t countdown_;
};

TEST(Executor, FirstErrorOfARankEndsAll) {
  Pipeline pipeline{.ranks = 4};
  const VerifiedSchedule schedule = pipeline.build();
  for (std::int64_t countdown = 0; countdown < 10; ++countdown) {
    std::atomic<std::int64_t> woken{0};
    try {
      run_ranks(4, [&](Communicator& real) {
        Failing communicator(real, real.rank() == 1 ? countdown : 1000);
        CpuBackend backend(communicator, kOneThread);
        Executor executor(schedule, backend, communicator);
        try {
          executor.run(schedule.schedule().train);
        } catch (const PeerError& error) {
          EXPECT_STREQ(error.what(), "rank 1 stopped");
          ++woken;
          throw;
        }
      });
      ADD_FAILURE() << "no error";
    } catch (const NumericError& error) {
      EXPECT_STREQ(error.what(), "the disk of rank 1 is on fire");
    }
    EXPECT_EQ(woken, 3);
  }
}

TEST(Executor, DeadlineNamesTheAbsent) {
  Pipeline pipeline{.ranks = 3, .rows = 6};
  const VerifiedSchedule schedule = pipeline.build();
  std::latch others(2);  // a busy machine may begin one of them late
  try {
    run_ranks(3,
              [&](Communicator& communicator) {
                if (communicator.rank() == 1) return;
                CpuBackend backend(communicator, kOneThread);
                Executor executor(schedule, backend, communicator);
                others.arrive_and_wait();
                executor.run(schedule.schedule().train);
              },
              {.deadline = std::chrono::seconds(1)});
    FAIL() << "no error";
  } catch (const PeerError& error) {
    EXPECT_NE(std::string(error.what()).find("waited 1000 ms for rank 1"), std::string::npos)
        << error.what();
    EXPECT_EQ(error.code(), ExitCode::peer_lost);
  }
}

}  // namespace
}  // namespace fpdt
