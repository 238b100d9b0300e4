// The stand-in for the output of attention that a library gets. cudnn_emulated_test.cpp tests the
// rest of kernels_tiles.h.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "fpdt/cuda/kernels_tiles.h"

#include "../cpu/kernel_case.h"

namespace fpdt::cuda {
namespace {

// Runs split_gradient on rows of gradients of one group out of `heads`.
struct Split {
  Split(const HeadGroup& group, const std::vector<float>& gradients,
        const std::vector<float>& deltas)
      : lse(index(group.rows * group.kv_heads)), o(lse.size() * index(group.head_dim)) {
    std::vector<std::uint16_t, Aligned<std::uint16_t>> dout, made(o.size());
    for (const float value : gradients) dout.push_back(to_bf16(value));
    std::vector<float> old_lse, delta = deltas;
    for (std::size_t i = 0; i < deltas.size(); ++i) old_lse.push_back(static_cast<float>(i));
    const auto view = [](auto& memory, Dtype dtype) {
      return View{reinterpret_cast<std::byte*>(memory.data()),
                  static_cast<std::int64_t>(memory.size()), dtype, Access::read};
    };
    split_gradient(group, view(dout, Dtype::bf16), view(old_lse, Dtype::f32),
                   view(delta, Dtype::f32), lse.data(), reinterpret_cast<std::byte*>(made.data()),
                   nullptr);
    for (std::size_t i = 0; i < o.size(); ++i) o[i] = static_cast<double>(from_bf16(made[i]));
  }
  std::vector<float, Aligned<float>> lse;
  std::vector<double> o;
};

TEST(SplitGradient, GivesDeltaBackFromTheStandIn) {
  constexpr HeadGroup kGroup{.rows = 9, .heads = 6, .kv_heads = 2, .head_dim = 96, .first = 1};
  constexpr std::size_t kDim = 96;
  KernelCase random(3);
  // Gradients of every magnitude, for an output of magnitude 1.
  std::vector<float> dout, delta;
  for (std::size_t row = 0; row < 9 * 6; ++row) {
    const double magnitude = std::pow(10.0, static_cast<double>(row % 9) * 9 - 36);
    for (const double value : random.random(96)) {
      dout.push_back(from_bf16(to_bf16(static_cast<float>(value * magnitude))));
    }
    delta.push_back(static_cast<float>(random.random(1)[0] * magnitude));
  }
  const Split split(kGroup, dout, delta);
  for (std::size_t row = 0; row < 9; ++row) {
    for (std::size_t kv_head = 0; kv_head < 2; ++kv_head) {
      const std::size_t from = row * 6 + kv_head * 3 + 1;
      EXPECT_EQ(split.lse[kv_head * 9 + row], static_cast<float>(from));
      double sum = 0, squares = 0;
      for (std::size_t d = 0; d < kDim; ++d) {
        const auto gradient = static_cast<double>(dout[from * kDim + d]);
        sum += gradient * split.o[(row * 2 + kv_head) * kDim + d];
        squares += gradient * gradient;
      }
      const auto expected = static_cast<double>(delta[from]);
      EXPECT_NEAR(sum, expected, 1.01 * kUnitBf16 * std::abs(expected)) << from;
      double length = 0;
      for (std::size_t d = 0; d < kDim; ++d) {
        length += std::pow(split.o[(row * 2 + kv_head) * kDim + d], 2);
      }
      EXPECT_LE(std::sqrt(length), 1.01 * std::abs(expected) / std::sqrt(squares)) << from;
    }
  }
}

TEST(SplitGradient, IsZeroWhereTheGradientIs) {
  constexpr HeadGroup kGroup{.rows = 2, .heads = 1, .kv_heads = 1, .head_dim = 64};
  std::vector<float> dout(2 * 64, 0.0F);
  dout[64] = 0x1p-130F;  // so small that its reciprocal is infinite
  const Split split(kGroup, dout, {0.0F, 0x1p-130F});
  for (const double value : split.o) EXPECT_EQ(value, 0.0);
}

}  // namespace
}  // namespace fpdt::cuda
