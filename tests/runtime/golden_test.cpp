// The hand-written schedules whose keys travel between ranks, against the reference: one layer's
// attention, forward and backward, with the tokens where the feeds say they are.
#include <cmath>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "fpdt/comm/thread.h"
#include "fpdt/cpu/backend.h"
#include "fpdt/io/file.h"
#include "fpdt/io/schedule_json.h"
#include "fpdt/reference/attention.h"
#include "fpdt/runtime/executor.h"
#include "fpdt/runtime/interleave.h"

#include "tiny.h"

namespace fpdt {
namespace {

constexpr std::size_t kTokens = 16;
constexpr reference::HeadLayout kHeads{2, 1, 4};
constexpr std::size_t kOut = 8;
// Documents of 6 and 10 tokens.
std::vector<std::int32_t> documents() {
  std::vector<std::int32_t> starts(kTokens, 6);
  std::fill_n(starts.begin(), 6, 0);
  return starts;
}

VerifiedSchedule golden_schedule(const std::string& name) {
  const std::string path = FPDT_SOURCE_DIR "/tests/golden/" + name;
  return verified(parse_schedule(read_file(path, 1 << 20), name));
}

reference::Matrix drawn(std::size_t width, unsigned seed) {
  std::mt19937 random(seed);
  reference::Matrix values(kTokens * width);
  for (double& value : values)
    value = static_cast<float>(static_cast<std::int32_t>(random())) * 0x1p-31F;
  return values;
}

using SlotOf = std::function<std::span<std::byte>(BufferIndex)>;

// Calls see(row, token) for every row that a rank is fed.
template <class See>
void each_row(const Schedule& schedule, std::int64_t rank, See&& see) {
  for (const Feed& feed : schedule.feeds) {
    if (feed.holds != Holds::tokens) continue;
    for (std::int64_t i = 0; i < feed.rows; ++i) {
      see(static_cast<std::size_t>(feed.row + i),
          static_cast<std::size_t>(feed.first.at(rank) + i));
    }
  }
}

BufferIndex named(const Schedule& schedule, std::string_view name) {
  for (std::size_t i = 0; i < schedule.buffers.size(); ++i) {
    if (schedule.buffers[i].name == name) return static_cast<BufferIndex>(i);
  }
  ADD_FAILURE() << name;
  return 0;
}

class Travelling : public testing::TestWithParam<const char*> {
 protected:
  const VerifiedSchedule file = golden_schedule(GetParam());
  const Schedule& schedule = file.schedule();
  const reference::Matrix qkv = drawn(kHeads.width(), 1);
  const reference::Matrix dout = drawn(kOut, 2);
  const reference::Matrix out = reference::attention(qkv, documents(), kHeads);
  const reference::Matrix dqkv = reference::attention_backward(qkv, documents(), kHeads, dout).qkv;

  void fill(std::int64_t rank, const SlotOf& slot) const {
    const std::vector<std::int32_t> starts = documents();
    std::memcpy(slot(named(schedule, "documents_input")).data(), starts.data(), 4 * kTokens);
    for (const auto& [name, values, width] :
         {std::tuple("qkv_input", &qkv, kHeads.width()), std::tuple("dout_input", &dout, kOut)}) {
      const std::span<float> held = floats(slot(named(schedule, name)));
      each_row(schedule, rank, [&, &from = *values, w = width](std::size_t row, std::size_t token) {
        for (std::size_t i = 0; i < w; ++i) {
          held[row * w + i] = static_cast<float>(from[token * w + i]);
        }
      });
    }
  }

  // The largest difference of a rank's results from the reference. f32 against double, over sums of
  // at most 16 terms of at most 1.
  void compare(std::int64_t rank, const SlotOf& slot) const {
    constexpr double kRounding = 64 * 0x1p-24;
    for (const auto& [name, values, width] :
         {std::tuple("o_output", &out, kOut), std::tuple("dqkv_output", &dqkv, kHeads.width())}) {
      const std::span<float> held = floats(slot(named(schedule, name)));
      each_row(schedule, rank,
               [&, &from = *values, w = width, what = name](std::size_t row, std::size_t token) {
                 for (std::size_t i = 0; i < w; ++i) {
                   EXPECT_NEAR(held[row * w + i], from[token * w + i], kRounding)
                       << what << " of token " << token << " on rank " << rank;
                 }
               });
    }
  }
};

TEST_P(Travelling, GivesTheResultsOfTheReference) {
  run_ranks(schedule.ranks, [&](Communicator& communicator) {
    CpuBackend backend(communicator, {.threads = 1});
    Executor executor(file, backend, communicator);
    const SlotOf slot = [&](BufferIndex buffer) { return executor.slot(buffer, 0); };
    fill(communicator.rank(), slot);
    executor.run(schedule.train);
    compare(communicator.rank(), slot);
    const Traffic sent = executor.sent();
    EXPECT_EQ(sent.node, traffic(schedule, schedule.train, communicator.rank(), 2).node);
  });
}

TEST_P(Travelling, GivesThemInEveryOrder) {
  Pool pool(1);
  Kernels kernels(pool);
  Interleaver interleaver(file, [&](std::int64_t rank, const Op& op, std::span<const View> views) {
    kernels.run(op.body, views, rank);
  });
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    for (std::int64_t rank = 0; rank < schedule.ranks; ++rank) {
      fill(rank, [&](BufferIndex buffer) { return interleaver.slot(rank, buffer, 0); });
    }
    interleaver.run(schedule.train, seed);
    for (std::int64_t rank = 0; rank < schedule.ranks; ++rank) {
      compare(rank, [&](BufferIndex buffer) { return interleaver.slot(rank, buffer, 0); });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, Travelling, testing::Values("zigzag_ring_2.json", "lss_2.json"),
                         [](const auto& one) {
                           const std::string name = one.param;
                           return name.substr(0, name.find('.'));
                         });

}  // namespace
}  // namespace fpdt
