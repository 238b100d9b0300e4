// A training step of a real method. Executor and interleavings agree to the bit, and the accounts
// of its bytes agree with the schedule.
#include <algorithm>
#include <cstring>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fpdt/comm/thread.h"
#include "fpdt/cpu/backend.h"
#include "fpdt/plan/lower.h"
#include "fpdt/runtime/accounts.h"
#include "fpdt/runtime/executor.h"
#include "fpdt/runtime/interleave.h"

#include "touched.h"

namespace fpdt {
namespace {

constexpr std::int64_t kRanks = 2;
constexpr std::int64_t kVocabulary = 19;

// A corner of the decision space.
struct Corner {
  const char* name;
  std::int64_t chunk_tokens = 16;
  BackwardOrder order = BackwardOrder::kv_outer;
  Recompute recompute = Recompute::from_input;
  double keep = 0.5;
  bool streamed = false;  // optimizer states, and every second layer's input stored
  bool serpentine = false;
  Extent extent = Extent::chunk;
  bool fused = false;  // attention tiles have a workspace, which the CPU does not use
};

// Two layers, up to four chunks, two micro-batches.
VerifiedSchedule small_fpdt(const Corner& corner) {
  Problem problem;
  problem.model.name = "tiny";
  problem.model.layers = 2;
  problem.model.hidden = 16;
  problem.model.heads = 4;
  problem.model.kv_heads = 2;
  problem.model.head_dim = 4;
  problem.model.feed_forward = 12;
  problem.model.vocabulary = kVocabulary;
  problem.model.kinds.front().rotary.fraction = 1;
  problem.model.source = "test";
  problem.cluster.name = "test";
  problem.cluster.devices_per_node = kRanks;
  problem.cluster.device_memory = problem.cluster.host_memory = Bytes{1 << 30};
  problem.cluster.source = "test";
  problem.device_budget = problem.host_budget = Bytes{1 << 30};
  problem.seq_len = 64;
  Strategy strategy;
  strategy.storage = Storage::f32;
  if (corner.fused) {
    problem.seq_len = 1024;
    problem.model.head_dim = 64;
    problem.cluster.row_multiple = 128;
    problem.cluster.attention = AttentionKernels::cudnn;
    problem.documents = false;
    strategy.storage = Storage::bf16;
  }
  strategy.micro_batches = 2;
  strategy.offload_states(corner.streamed);
  strategy.copies.optimizer_tile = 1024;
  strategy.tiles.chunk_tokens = corner.chunk_tokens;
  strategy.extent = corner.extent;
  strategy.segments = {corner.streamed ? 2 : 1};
  strategy.tiles.backward_order = corner.order;
  strategy.tiles.serpentine = strategy.tiles.long_tiles = corner.serpentine;
  strategy.layer_classes[0].recompute = corner.recompute;
  strategy.layer_classes[0].keep.fill(corner.keep);
  return lower(problem, strategy).schedule;
}

using Slot = std::function<std::span<std::byte>(BufferIndex, std::int64_t)>;

// Calls see(buffer, slot) for every slot of the buffers in these roles.
void each_slot(const Schedule& schedule, std::initializer_list<Role> roles,
               const std::function<void(BufferIndex, std::int64_t)>& see) {
  for (std::size_t i = 0; i < schedule.buffers.size(); ++i) {
    const Buffer& buffer = schedule.buffers[i];
    if (std::find(roles.begin(), roles.end(), buffer.role) == roles.end()) continue;
    for (std::int64_t slot = 0; slot < buffer.slots; ++slot) see(static_cast<BufferIndex>(i), slot);
  }
}

// Random words and labels, one document, small positive weights and scalars.
void fill(const Schedule& schedule, std::int64_t rank, const Slot& slot) {
  std::mt19937 random(static_cast<std::uint32_t>(rank));
  each_slot(schedule, {Role::state, Role::input}, [&](BufferIndex index, std::int64_t number) {
    const Buffer& buffer = schedule.buffers[static_cast<std::size_t>(index)];
    const std::span<std::byte> bytes = slot(index, number);
    for (std::size_t at = 0; at < bytes.size(); at += 4) {
      const auto word = static_cast<std::int32_t>(random() % kVocabulary);
      const float real = static_cast<float>(word + 1) / 200;
      const std::int32_t start = 0;
      const void* value = &real;
      if (buffer.dtype == Dtype::i32) value = buffer.name == "documents" ? &start : &word;
      std::memcpy(&bytes[at], value, 4);
      // The upper half of an f32 is a bf16, so both halves get the same bytes.
      if (buffer.dtype == Dtype::bf16) std::memcpy(&bytes[at], &bytes[at + 2], 2);
    }
  });
}

// The bytes of all states and outputs, concatenated.
std::vector<std::byte> results(const Schedule& schedule, const Slot& slot) {
  std::vector<std::byte> all;
  each_slot(schedule, {Role::state, Role::output}, [&](BufferIndex index, std::int64_t number) {
    const std::span<std::byte> bytes = slot(index, number);
    all.insert(all.end(), bytes.begin(), bytes.end());
  });
  return all;
}

float loss(const Schedule& schedule, const Slot& slot) {
  float value = 0;
  each_slot(schedule, {Role::output}, [&](BufferIndex index, std::int64_t number) {
    if (schedule.buffers[static_cast<std::size_t>(index)].name != "loss_output") return;
    std::memcpy(&value, slot(index, number).data(), sizeof value);
  });
  return value;
}

void on_ranks(const VerifiedSchedule& schedule,
              const std::function<void(Executor&, std::int64_t rank, const Slot&)>& body) {
  run_ranks(kRanks, [&](Communicator& communicator) {
    CpuBackend backend(communicator, {.threads = 2});
    Executor executor(schedule, backend, communicator);
    const Slot slot = [&](BufferIndex buffer, std::int64_t number) {
      return executor.slot(buffer, number);
    };
    body(executor, communicator.rank(), slot);
  });
}

TEST(FpdtSchedule, EveryOrderGivesTheBitsOfTheExecutor) {
  const VerifiedSchedule verified = small_fpdt({.name = "halves"});
  const Schedule& schedule = verified.schedule();
  std::vector<std::vector<std::byte>> expected(kRanks);
  on_ranks(verified, [&](Executor& executor, std::int64_t rank, const Slot& slot) {
    fill(schedule, rank, slot);
    const std::vector<std::byte> before = results(schedule, slot);
    executor.run(schedule.train);
    expected[static_cast<std::size_t>(rank)] = results(schedule, slot);
    EXPECT_NE(expected[static_cast<std::size_t>(rank)], before);
    EXPECT_GT(loss(schedule, slot), 0);  // also fails for NaN
  });
  Pool pool(1);
  Kernels kernels(pool);
  Interleaver interleaver(verified,
                          [&](std::int64_t rank, const Op& op, std::span<const View> views) {
                            kernels.run(op.body, views, rank);
                          });
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    for (std::int64_t rank = 0; rank < kRanks; ++rank) {
      fill(schedule, rank, [&](BufferIndex buffer, std::int64_t slot) {
        return interleaver.slot(rank, buffer, slot);
      });
    }
    interleaver.run(schedule.train, seed);
    for (std::int64_t rank = 0; rank < kRanks; ++rank) {
      const auto found = results(schedule, [&](BufferIndex buffer, std::int64_t slot) {
        return interleaver.slot(rank, buffer, slot);
      });
      EXPECT_EQ(found, expected[static_cast<std::size_t>(rank)]) << "seed " << seed;
    }
  }
}

// Strategies: one chunk and many, spilled and kept, every recomputation and loop order.
class FpdtAccounts : public testing::TestWithParam<Corner> {};

INSTANTIATE_TEST_SUITE_P(
    Corners, FpdtAccounts,
    testing::Values(
        Corner{.name = "one_chunk", .chunk_tokens = 64, .keep = 1}, Corner{.name = "halves"},
        Corner{.name = "ragged", .chunk_tokens = 24, .keep = 0},
        Corner{.name = "spilled", .keep = 0},
        Corner{.name = "q_outer", .order = BackwardOrder::q_outer, .serpentine = true},
        Corner{.name = "keep_attention", .recompute = Recompute::keep_attention, .keep = 0},
        Corner{
            .name = "keep_all", .order = BackwardOrder::q_outer, .recompute = Recompute::keep_all},
        Corner{.name = "streamed", .keep = 0, .streamed = true, .serpentine = true},
        Corner{.name = "whole", .extent = Extent::whole},
        Corner{.name = "fused", .chunk_tokens = 256, .fused = true}),
    [](const auto& corner) { return std::string(corner.param.name); });

TEST_P(FpdtAccounts, OfBytesAgree) {
  const VerifiedSchedule verified = small_fpdt(GetParam());
  const Schedule& schedule = verified.schedule();
  std::mutex mutex;
  std::vector<Account> accounts;
  std::vector<Trace> traces;
  on_ranks(verified, [&](Executor& executor, std::int64_t rank, const Slot& slot) {
    fill(schedule, rank, slot);
    const Trace trace = executor.record(schedule.train);
    const std::vector<Account> resident = account_resident(executor, schedule.train);
    const std::vector<Account> touched =
        account_touched(executor, schedule.train, [&] { fill(schedule, rank, slot); });
    const std::lock_guard lock(mutex);
    accounts.insert(accounts.end(), resident.begin(), resident.end());
    accounts.insert(accounts.end(), touched.begin(), touched.end());
    traces.push_back(trace);
  });
  ASSERT_EQ(accounts.size(), 6U * kRanks);
  for (const Account& account : accounts) {
    EXPECT_EQ(account.difference, "");
    EXPECT_EQ(account.found, account.expected) << word(account.space);
  }
  for (const Trace& trace : traces) EXPECT_EQ(find_overrun(trace), "");
}

}  // namespace
}  // namespace fpdt
