// Whole ops on more than 2^31 elements on a GPU. The emulator runs only their last blocks.
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "fpdt/cuda/kernels.h"

#include "../cpu/kernel_case.h"
#include "device_under_test.h"

namespace fpdt {
namespace {

constexpr std::int64_t kWidth = 4096;
constexpr std::int64_t kRows = (std::int64_t{1} << 31) / kWidth + 3;
constexpr std::int64_t kElements = kRows * kWidth;

// bf16 values in device memory.
struct Large {
  explicit Large(Access access)
      : memory(device_memory(2 * kElements)), view{memory.get(), kElements, Dtype::bf16, access} {}
  // The last elements, and the first.
  [[nodiscard]] std::vector<float> ends() const {
    constexpr std::int64_t kEach = 64;
    std::vector<float> values;
    for (const std::int64_t first : {std::int64_t{0}, kElements - kEach}) {
      std::array<std::uint16_t, kEach> bits{};
      download(std::as_writable_bytes(std::span(bits)), memory.get() + 2 * first);
      for (const std::uint16_t one : bits) values.push_back(from_bf16(one));
    }
    return values;
  }
  DeviceBytes memory;
  View view;
};

class LargeOperands : public testing::Test {
 protected:
  LargeOperands() : scratch_(device_memory(cuda::kScratchBytes)) {}

  // Operands have the numbers of their views.
  template <class Op>
  void run(const Op& op, const std::vector<View>& views) {
    cuda::execute(op, cuda::Frame{views, 0, device_stream(0), scratch_.get()});
    synchronise_device();
  }
  static Operand operand(BufferIndex number) { return {.buffer = number, .version = {}}; }

  void fill(const Large& target, double value) {
    run(Fill{{operand(0), false}, value}, {target.view});
  }
  static void expect_ends(const Large& found, float value) {
    for (const float one : found.ends()) ASSERT_EQ(one, value);
  }

  DeviceBytes scratch_;
};

TEST_F(LargeOperands, FillCopyAndSum) {
  Large source(Access::write);
  fill(source, 1.5);
  expect_ends(source, 1.5F);
  source.view.access = Access::read;
  Large target(Access::write);
  run(Copy{operand(0), {operand(1), false}}, {source.view, target.view});
  expect_ends(target, 1.5F);
  const DeviceBytes sum = device_memory(4);
  std::array<float, 1> found{0};
  upload(sum.get(), std::as_bytes(std::span(found)));
  run(SquaredNorm{operand(0), {operand(1), true}},
      {source.view, View{sum.get(), 1, Dtype::f32, Access::accumulate}});
  download(std::as_writable_bytes(std::span(found)), sum.get());
  EXPECT_NEAR(found[0], 2.25 * static_cast<double>(kElements), 1e-5 * 2.25 * kElements);
}

TEST_F(LargeOperands, NormAndActivation) {
  Large x(Access::write);
  fill(x, 2);
  x.view.access = Access::read;
  Large y(Access::write);
  const DeviceBytes weight = device_memory(4 * kWidth);
  run(Fill{{operand(0), false}, 3}, {View{weight.get(), kWidth, Dtype::f32, Access::write}});
  Norm norm;
  norm.x = operand(0), norm.weight = operand(1), norm.y = {operand(2), false};
  norm.rows = kRows, norm.width = kWidth, norm.epsilon = 0;
  run(norm, {x.view, View{weight.get(), kWidth, Dtype::f32, Access::read}, y.view});
  expect_ends(y, 3);
  Activation activation;
  activation.x = operand(0), activation.y = {operand(1), false};
  activation.kind = ActivationKind::gelu_erf, activation.rows = kRows, activation.width = kWidth;
  run(activation, {x.view, y.view});
  expect_ends(y, from_bf16(to_bf16(1.9544997F)));  // gelu(2)
}

}  // namespace
}  // namespace fpdt
