// The emulator itself: the results that it computes, and the errors that it detects.
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include "fpdt/cuda/device.h"

#include "simt.h"

namespace fpdt::cuda {
namespace {

void sum_block(const float* values, float* sums) {
  __shared__ float room[kWarp];
  const float sum = block_sum(values[global_thread()], room);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

TEST(Emulator, SumsABlockInTheSameOrderWhoeverComesFirst) {
  std::vector<float> values(256);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 1.0F / static_cast<float>(i + 1);
  std::vector<float> first;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    emulator::set({.seed = seed, .last_blocks = -1});
    std::vector<float> sums(2);
    launch(sum_block, 2, 128, 0, nullptr, values.data(), sums.data());
    float expected = 0;
    for (std::size_t i = 0; i < 128; ++i) expected += values[i];
    EXPECT_NEAR(sums[0], expected, 1e-5);
    if (first.empty()) first = sums;
    EXPECT_EQ(sums, first);
  }
}

// Reuses shared memory without a barrier in between.
void hurries(const float* values, float* sums) {
  __shared__ float room[kWarp];
  const float first = block_sum(values[threadIdx.x], room);
  const float second = block_sum(2 * values[threadIdx.x], room);
  if (threadIdx.x == 96) *sums = first + second;
}

TEST(Emulator, LetsAWarpRunAhead) {
  const std::vector<float> values(128, 1.0F);
  float sum = 0;
  emulator::set({.seed = 2, .last_blocks = -1});
  launch(hurries, 1, 128, 0, nullptr, values.data(), &sum);
  EXPECT_NE(sum, 3 * 128.0F);
}

void apart() {
  if (threadIdx.x == 0) {
    __syncthreads();
  } else {
    __syncwarp();
  }
}

TEST(Emulator, FindsLanesThatWaitAtDifferentBarriers) {
  EXPECT_THROW(launch(apart, 1, 32, 0, nullptr), std::logic_error);
}

void forgets(const bf16* from) {
  copy_async(dynamic_shared<bf16>(), from, true);
  commit_copies();
}

TEST(Emulator, FindsCopiesThatNobodyAwaits) {
  alignas(16) const bf16 from[8] = {};
  EXPECT_THROW(launch(forgets, 1, 32, 16, nullptr, from), std::logic_error);
}

// d = a * b^T of [16,16] and [8,16], by the documented layout of registers.
void multiply(const bf16* a, const bf16* b, float* d) {
  auto* shared = dynamic_shared<bf16>();
  for (unsigned i = threadIdx.x; i < 256; i += kWarp) shared[i] = a[i];
  __syncwarp();
  const unsigned lane = threadIdx.x;
  unsigned of_a[4];
  // Matrices: rows 0-7 and 8-15 of columns 0-7, then of columns 8-15.
  load_matrices<false>(of_a, shared + lane % 16 * 16 + lane / 16 * 8);
  const auto pair = [&](unsigned n, unsigned k) {
    return pack_bf16(to_float(b[n * 16 + k]), to_float(b[n * 16 + k + 1]));
  };
  float of_d[4] = {};
  mma_bf16(of_d, of_a, pair(lane / 4, lane % 4 * 2), pair(lane / 4, lane % 4 * 2 + 8));
  for (unsigned i = 0; i < 4; ++i) {
    d[(lane / 4 + (i >= 2 ? 8 : 0)) * 8 + lane % 4 * 2 + i % 2] = of_d[i];
  }
}

TEST(Emulator, MultipliesAsTensorCoresDo) {
  std::vector<bf16> a(256), b(128);
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = from_float<bf16>(static_cast<float>(i % 7) - 3.0F);
  }
  for (std::size_t i = 0; i < b.size(); ++i) {
    b[i] = from_float<bf16>(static_cast<float>(i % 5) - 2.0F);
  }
  std::vector<float> d(128);
  launch(multiply, 1, 32, 512, nullptr, a.data(), b.data(), d.data());
  for (std::size_t m = 0; m < 16; ++m) {
    for (std::size_t n = 0; n < 8; ++n) {
      float expected = 0;
      for (std::size_t k = 0; k < 16; ++k) {
        expected += to_float(a[m * 16 + k]) * to_float(b[n * 16 + k]);
      }
      EXPECT_EQ(d[m * 8 + n], expected) << m << " " << n;
    }
  }
}

}  // namespace
}  // namespace fpdt::cuda
