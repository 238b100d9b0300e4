// The backend on a machine with something wrong; it must leave nothing behind.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fpdt/base/error.h"
#include "fpdt/check/check.h"
#include "fpdt/comm/solo.h"
#include "fpdt/cuda/backend.h"
#include "fpdt/cuda/kernels_memory.h"
#include "fpdt/cuda/memory.h"
#include "fpdt/cuda/shared_memory.h"
#include "fpdt/cuda/status.h"
#include "fpdt/runtime/accounts.h"
#include "fpdt/runtime/executor.h"
#include "fpdt/schedule/verify.h"

#include "../runtime/touched.h"
#include "../train/cases.h"
#include "fake_runtime.h"

namespace fpdt {
namespace {

RankOptions on_the_fake() {
  RankOptions options;
  options.make_backend = [](Communicator& communicator) {
    return std::make_unique<CudaBackend>(communicator, CudaOptions{});
  };
  return options;
}

Case small_case(std::int64_t ranks = 1) {
  ModelSpec model = tiny_llama();
  model.head_dim = 8;
  Case one = make_case(model, ranks, 24, 8);
  one.strategy.storage = Storage::bf16;
  return one;
}

// The message of the error from opening the machine; the error must have this type.
template <class Kind>
std::string refusal(const fake::Machine& machine, const Case& one = small_case()) {
  fake::set(machine);
  try {
    Rig rig(one, on_the_fake());
  } catch (const Kind& error) {
    EXPECT_EQ(fake::allocated(), 0);
    EXPECT_EQ(fake::pinned_ranges(), 0);
    return error.what();
  }
  return "no error";
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Conditions, NoDriver) {
  const std::string text =
      refusal<InputError>({.count_status = cudaErrorInsufficientDriver, .devices = 0, .driver = 0});
  EXPECT_TRUE(says(text, "no NVIDIA driver")) << text;
  EXPECT_TRUE(says(text, "--backend cpu")) << text;
}

TEST(Conditions, DriverOlderThanTheProgram) {
  const std::string text =
      refusal<InputError>({.count_status = cudaErrorInsufficientDriver, .driver = 11040});
  EXPECT_TRUE(says(text, "supports CUDA 11.4")) << text;
  EXPECT_TRUE(says(text, CUDART_VERSION >= 13000 ? "needs driver 580" : "needs driver 535"))
      << text;
}

TEST(Conditions, NoDevice) {
  const std::string text = refusal<InputError>({.count_status = cudaErrorNoDevice, .devices = 0});
  EXPECT_TRUE(says(text, "CUDA_VISIBLE_DEVICES")) << text;
}

TEST(Conditions, DeviceThatTheKernelsAreNotBuiltFor) {
  const std::string text = refusal<InputError>({.major = 7, .minor = 0});
  EXPECT_TRUE(says(text, "compute capability 7.0; the kernels need 8.0")) << text;
}

TEST(Conditions, TooLittleDeviceMemory) {
  const std::string text = refusal<MemoryError>({.memory = 1 << 16});
  EXPECT_TRUE(says(text, "rank 0: the arena of device needs")) << text;
  EXPECT_TRUE(says(text, "64.0 KiB is free")) << text;
}

TEST(Conditions, PinningRefused) {
  const std::string text = refusal<MemoryError>({.pin_status = cudaErrorMemoryAllocation});
  EXPECT_TRUE(says(text, "could not be pinned")) << text;
  EXPECT_TRUE(says(text, "ulimit -l")) << text;
}

// Pieces end at multiples of their size, and no copy crosses such a border.
TEST(Conditions, PinsInPieces) {
  fake::set({});
  cuda::use_gpu(0);
  constexpr std::int64_t kPiece = 1 << 20;
  {
    cuda::PinnedMemory memory(Bytes{5 * kPiece / 2}, "an arena", kPiece);
    EXPECT_GE(fake::pinned_ranges(), 3);
    const cuda::PinnedMemory moved = std::move(memory);
    const std::span<std::byte> bytes = moved.bytes();
    const cuda::DeviceMemory device(Bytes{std::ssize(bytes)}, "an arena");
    std::size_t parts = 0, sum = 0;
    cuda::each_part(
        device.bytes().data(), bytes.data(), bytes.size(),
        [&](std::byte* to, const std::byte* from, std::size_t part) {
          cuda::check(cudaMemcpy(to, from, part, cudaMemcpyDefault), "a copy");
          ++parts;
          sum += part;
        },
        kPiece);
    EXPECT_GE(parts, 3U);
    EXPECT_EQ(sum, bytes.size());
  }
  EXPECT_EQ(fake::pinned_ranges(), 0);
}

TEST(Conditions, AttentionThatNoKernelServes) {
  Case one = small_case();
  one.problem.model.head_dim = 4;
  const std::string text = refusal<InputError>({}, one);
  EXPECT_TRUE(says(text, "attn.0.0: no kernel for attention of ")) << text;
  EXPECT_TRUE(says(text, "heads of 4 in bf16")) << text;
  EXPECT_TRUE(says(text, "--backend cpu")) << text;
  Case single = small_case();
  single.strategy.storage = Storage::f32;
  EXPECT_TRUE(says(refusal<InputError>({}, single), "storage: bf16"));
}

TEST(Conditions, NothingIsTakenAfterThePreparation) {
  fake::set({});
  const Case one = small_case(2);
  {
    Rig rig(one, on_the_fake());
    rig.trainer.set_parameters(random_parameters(7));
    const std::int64_t before = fake::allocations();
    const std::vector<Sample> samples =
        random_samples(one.problem, rig.trainer.samples_per_step(), 3);
    rig.trainer.step(samples, 1e-2);
    rig.trainer.step(samples, 1e-2);
    EXPECT_EQ(fake::allocations(), before);
    EXPECT_GT(fake::allocated(), 0);
  }
  EXPECT_EQ(fake::allocated(), 0);
  EXPECT_EQ(fake::pinned_ranges(), 0);
}

// Bytes that change over complementary patterns are the written operands, on a device as well.
TEST(Conditions, TouchesWhatTheScheduleSays) {
  fake::set({});
  const Case one = small_case();
  Rig rig(one, on_the_fake());
  SoloCommunicator alone(0, 1);
  CudaBackend backend(alone, {});
  Executor executor(rig.lowered.schedule, backend, alone);
  const auto reset = [&] {
    const std::vector<Buffer>& buffers = executor.schedule().buffers;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      if (buffers[i].role != Role::state && buffers[i].role != Role::input) continue;
      const std::vector<std::byte> zeros(static_cast<std::size_t>(buffers[i].slot_bytes().value));
      for (std::int64_t slot = 0; slot < buffers[i].slots; ++slot) {
        executor.write(static_cast<BufferIndex>(i), slot, zeros);
      }
    }
  };
  for (const Account& account :
       account_touched(executor, rig.lowered.schedule.schedule().train, reset)) {
    EXPECT_EQ(account.difference, "") << word(account.space);
    EXPECT_EQ(account.found, account.expected) << word(account.space);
  }
}

// Counts on the device the words that changed since the preparation: exactly those of the schedule.
TEST(Conditions, CountsWhatAStepTouched) {
  fake::set({});
  const Case one = small_case();
  Rig rig(one, on_the_fake());
  rig.trainer.set_parameters(random_parameters(7));
  std::vector<MemoryUse> memory;
  rig.trainer.step_measured(random_samples(one.problem, rig.trainer.samples_per_step(), 3), 1e-2,
                            memory);
  const MemoryUse& device = memory.front();
  EXPECT_EQ(device.difference, "");
  ASSERT_TRUE(device.untouched);
  EXPECT_GT(device.touched, Bytes{0});
  EXPECT_EQ(device.touched + device.untouched->scratch + device.untouched->between, device.arena);
  EXPECT_FALSE(memory[1].untouched);  // the system counts host memory

  const std::span<const Call> calls = rig.trainer.schedule().train;
  Executor& executor = rig.trainer.ranks().executor(0);
  const auto difference = [&] {
    return count_touched(executor, calls, MemorySpace::device)->difference;
  };
  ASSERT_EQ(difference(), "");
  // An op that left a hole of two words, which still hold the poison.
  const ByteRanges written = written_bytes(executor.program(), calls, MemorySpace::device);
  const std::span<std::byte> arena = executor.arena(MemorySpace::device);
  const std::span<std::byte> hole =
      arena.subspan(static_cast<std::size_t>(written.back().end) - 8, 8);
  const std::vector<std::byte> before(hole.begin(), hole.end());
  const std::array<std::uint32_t, 2> poison{cuda::kPoison, cuda::kPoison};
  std::memcpy(hole.data(), poison.data(), hole.size());
  EXPECT_EQ(difference(), "8 B that the schedule writes was not written");
  std::copy(before.begin(), before.end(), hole.begin());
  // An op that wrote outside its operands.
  ASSERT_GE(device.untouched->between, Bytes{4});
  std::size_t between = 0;
  while (executor.untouched(arena.subspan(between, 4)) != Bytes{4}) between += 4;
  arena[between] ^= std::byte{1};
  EXPECT_EQ(difference(), "4 B outside every operand was written");
}

// A library's tile whose last keys no query sees.
TEST(Conditions, KeysThatNoQuerySeesHaveNoGradient) {
  constexpr std::int64_t kQueries = 128, kKeys = 256, kSize = 64;
  Schedule schedule;
  schedule.problem = "{}";
  schedule.groups.push_back({"all", 1, 1, {}});
  schedule.blocks.push_back({"step", {}, {}});
  schedule.train.push_back({0, 0, 0, 0});
  std::int64_t end = 0;
  const auto buffer = [&](const char* name, Role role, Dtype dtype,
                          const std::vector<std::int64_t>& shape) {
    schedule.buffers.push_back(
        {name, MemorySpace::device, role, Category::activations, dtype, shape, 1, end});
    end += schedule.buffers.back().bytes().value;
    return Operand{static_cast<BufferIndex>(schedule.buffers.size() - 1), Version::at(0), 0, -1};
  };
  AttentionBackward tile;
  tile.q = buffer("q", Role::input, Dtype::bf16, {kQueries, kSize});
  tile.kv = buffer("kv", Role::input, Dtype::bf16, {kKeys, 2 * kSize});
  tile.dout = buffer("dout", Role::input, Dtype::bf16, {kQueries, kSize});
  tile.lse = buffer("lse", Role::input, Dtype::f32, {kQueries, 1});
  tile.delta = buffer("delta", Role::input, Dtype::f32, {kQueries, 1});
  tile.dq.operand = buffer("dq", Role::output, Dtype::f32, {kQueries, kSize});
  tile.dkv.operand = buffer("dkv", Role::output, Dtype::f32, {kKeys, 2 * kSize});
  tile.workspace = buffer("workspace", Role::temporary, Dtype::f32, {1 << 18});
  tile.q_rows = kQueries, tile.k_rows = kKeys;
  tile.heads = 1, tile.kv_heads = 1, tile.head_dim = kSize;
  schedule.blocks[0].ops.push_back({"tile", {LaneKind::compute, 0}, tile, {}});
  const VerifiedSchedule file = verified(schedule);

  fake::set({});
  SoloCommunicator alone(0, 1);
  CudaBackend backend(alone, {});
  Executor executor(file, backend, alone);
  for (std::size_t i = 0; i < 5; ++i) {  // the inputs
    const Buffer& input = schedule.buffers[i];
    const std::vector<std::byte> ones(static_cast<std::size_t>(input.slot_bytes().value),
                                      std::byte{0x3C});
    executor.write(static_cast<BufferIndex>(i), 0, ones);
  }
  executor.run(file.schedule().train);
  std::vector<float> dkv(2 * kKeys * kSize);
  executor.read(tile.dkv.operand.buffer, 0, std::as_writable_bytes(std::span(dkv)));
  EXPECT_NE(dkv[kSize], 0.0F);  // a value that the first query sees
  const auto unseen = dkv.begin() + 2 * kQueries * kSize;
  EXPECT_EQ(std::count(unseen, dkv.end(), 0.0F), dkv.end() - unseen);
}

// Rings of events are no longer than a step needs.
TEST(Conditions, ALaneHasNoMoreEventsThanOps) {
  fake::set({});
  const Case one = small_case();
  const Rig rig(one, on_the_fake());
  const Program program(rig.lowered.schedule.schedule());
  std::int64_t ops = 0;
  for (const Call& call : program.schedule->train) {
    ops += std::ssize(program.blocks[static_cast<std::size_t>(call.block)].ops);
  }
  EXPECT_GT(fake::events(), 0);
  EXPECT_LE(fake::events(), ops + 1);  // and the origin of times
}

TEST(Conditions, SharedMemoryIsAskedForOnce) {
  fake::set({});
  cuda::use_gpu(0);
  const char kernels[2]{};
  const std::int64_t before = fake::attribute_calls();
  for (int i = 0; i < 3; ++i) {
    cuda::allow_shared_memory(&kernels[0]);
    cuda::allow_shared_memory(&kernels[1]);
  }
  EXPECT_EQ(fake::attribute_calls() - before, 2);
}

TEST(Conditions, TimesFollowTheLanes) {
  fake::set({});
  const Case one = small_case(2);
  Rig rig(one, on_the_fake());
  rig.trainer.set_parameters(random_parameters(7));
  std::vector<Trace> traces;
  rig.trainer.step_recorded(random_samples(one.problem, rig.trainer.samples_per_step(), 3), 1e-2,
                            traces);
  ASSERT_EQ(traces.size(), 2U);
  for (const Trace& trace : traces) {
    std::vector<std::int64_t> free(trace.lanes.size(), 0);
    for (const Span& span : trace.spans) {
      const auto lane = static_cast<std::size_t>(span.lane);
      EXPECT_GE(span.begin, free[lane]);
      EXPECT_GE(span.end, span.begin);
      free[lane] = span.end;
    }
    EXPECT_EQ(find_overrun(trace), "");
  }
}

}  // namespace
}  // namespace fpdt
