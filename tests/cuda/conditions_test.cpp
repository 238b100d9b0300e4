// The backend when the machine is not as it should be, and what it leaves behind: nothing.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fpdt/base/error.h"
#include "fpdt/comm/solo.h"
#include "fpdt/cuda/attention_pieces.h"
#include "fpdt/cuda/backend.h"
#include "fpdt/runtime/accounts.h"

#include "../train/cases.h"
#include "check.h"
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

// What opening the machine answers; the kind of the error must be right as well.
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
  EXPECT_TRUE(says(text, "serves CUDA 11.4")) << text;
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
  EXPECT_TRUE(says(text, "64.0 KiB are free")) << text;
}

TEST(Conditions, PinningRefused) {
  const std::string text = refusal<MemoryError>({.pin_status = cudaErrorMemoryAllocation});
  EXPECT_TRUE(says(text, "could not be pinned")) << text;
  EXPECT_TRUE(says(text, "ulimit -l")) << text;
}

TEST(Conditions, AttentionThatNoKernelServes) {
  Case one = small_case();
  one.problem.model.head_dim = 4;
  const std::string text = refusal<InputError>({}, one);
  EXPECT_TRUE(says(text, "heads of 4")) << text;
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

// Bytes that change over complementary patterns are the written operands, also on a device.
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

namespace cuda {
namespace {

// Pieces that follow each other cover what is seen, and no more.
TEST(KeyPieces, CoverWhatIsSeen) {
  for (const std::int64_t q_first : {0, 128, 4096, 33024}) {
    for (const std::int64_t q_rows : {128, 512, 1000}) {
      for (const std::int64_t k_first : {0, 128, 4096}) {
        for (const std::int64_t k_rows : {128, 640, 40000}) {
          const std::int64_t end = std::min(k_first + k_rows, q_first + q_rows);
          std::int64_t at = k_first;
          for (const KeyPiece& piece : key_pieces(q_first, q_rows, k_first, k_rows, 4096)) {
            EXPECT_EQ(piece.first, at);
            EXPECT_GT(piece.rows, 0);
            at += piece.rows;
            EXPECT_TRUE(at > q_first || piece.rows <= 4096);
          }
          EXPECT_EQ(at, std::max(k_first, end));
        }
      }
    }
  }
}

TEST(KeyPieces, TakeFewSizes) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t q_first = 0; q_first < (1 << 21); q_first += 1 << 15) {
    for (const KeyPiece& piece : key_pieces(q_first, 1 << 15, 0, q_first + (1 << 15), 1 << 20)) {
      if (std::find(sizes.begin(), sizes.end(), piece.rows) == sizes.end()) {
        sizes.push_back(piece.rows);
      }
    }
  }
  EXPECT_LE(sizes.size(), 6U);  // 32K to 1M
}

}  // namespace
}  // namespace cuda
}  // namespace fpdt
