// Activations, fill, copy and permute against their formulas.
#include <limits>

#include "kernel_case.h"

namespace fpdt {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double activation(ActivationKind kind, double x) {
  const double cubic = std::sqrt(2 / 3.141592653589793) * (x + 0.044715 * x * x * x);
  switch (kind) {
    case ActivationKind::swiglu:
      return x * sigmoid(x);
    case ActivationKind::clamped_swiglu:  // its clamp is in `clamped`
      return x * sigmoid(1.702 * x);
    case ActivationKind::geglu_tanh:
    case ActivationKind::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(cubic));
    case ActivationKind::gelu_erf:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  }
  return 0;
}

// Central difference, exact to eight digits.
double slope(ActivationKind kind, double x) {
  constexpr double kStep = 1e-5;
  return (activation(kind, x + kStep) - activation(kind, x - kStep)) / (2 * kStep);
}

// Clamped between `least` and 7, and whether it has a slope there: at the limits it has.
struct Clamped {
  double value, slope;
};
Clamped clamped(ActivationKind kind, double x, double least) {
  if (kind != ActivationKind::clamped_swiglu) return {x, 1};
  return {std::clamp(x, least, 7.0), x < least || x > 7 ? 0.0 : 1.0};
}

constexpr std::array kKinds{ActivationKind::swiglu, ActivationKind::gelu_tanh,
                            ActivationKind::gelu_erf, ActivationKind::geglu_tanh,
                            ActivationKind::clamped_swiglu};

// Arguments are in [-12, 12), from vanishing exponentials to saturation. Results are at most 12
// times a sigmoid, which errs by a few units. Its argument is at most 150 and errs by 4 units.
constexpr double kActivationError = 12 * 64 * kUnit;

// `dtype` is that of x and dx, `other` that of y and dy.
void check_activation(ActivationKind kind, std::int64_t width, Dtype dtype, Dtype other) {
  SCOPED_TRACE(testing::Message() << word(kind) << " " << width << " " << word(dtype));
  const bool gated = inputs_of(kind) == 2;
  const std::int64_t rows = 3, x_width = gated ? 2 * width : width;
  KernelCase memory;
  std::vector<double> spread = memory.random(rows * x_width);
  for (double& value : spread) value *= 12;
  Activation op;
  op.kind = kind, op.rows = rows, op.width = width;
  op.x = memory.put(dtype, spread);
  op.y = memory.write(other, rows * width);
  ActivationBackward back;
  back.kind = kind, back.rows = rows, back.width = width;
  back.x = op.x;
  back.dy = memory.put_random(other, rows * width);
  back.dx = memory.write(dtype, rows * x_width);
  memory.run(op);
  memory.run(back);
  const auto x = memory.values(op.x), dy = memory.values(back.dy);
  std::vector<double> y(index(rows * width)), dx(index(rows * x_width));
  for (std::int64_t i = 0; i < rows * width; ++i) {
    const std::size_t at = index(i / width * x_width + i % width);
    const std::size_t up = at + index(width);
    const Clamped gate = clamped(kind, x[at], -INFINITY);
    Clamped factor{1, 0};
    if (gated) factor = clamped(kind, x[up], -7);
    if (kind == ActivationKind::clamped_swiglu) factor.value += 1;
    y[index(i)] = activation(kind, gate.value) * factor.value;
    dx[at] = dy[index(i)] * gate.slope * slope(kind, gate.value) * factor.value;
    if (gated) dx[up] = dy[index(i)] * activation(kind, gate.value) * factor.slope;
  }
  expect_close(memory.values(op.y), y, 12 * kActivationError, other);
  expect_close(memory.values(back.dx), dx, 12 * kActivationError, dtype);
}

TEST(ActivationKernel, ForwardAndBackward) {
  for (const ActivationKind kind : kKinds) {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      for (const std::int64_t width : {33, 1104}) check_activation(kind, width, dtype, dtype);
    }
    check_activation(kind, 40, Dtype::bf16, Dtype::f32);
  }
}

TEST(FillKernel, EveryType) {
  for (const std::int64_t count : {40000, 1, 1001}) {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::i32}) {
      KernelCase memory;
      Fill op;
      op.target = memory.write(dtype, count);
      op.value = 3;
      memory.run(op);
      EXPECT_EQ(memory.values(op.target), std::vector<double>(index(count), 3.0));
    }
  }
}

void check_copy(std::int64_t count, Dtype from, Dtype to, bool accumulate) {
  SCOPED_TRACE(testing::Message() << count << " " << word(from) << " to " << word(to));
  KernelCase memory;
  Copy op;
  op.source = memory.put_random(from, count);
  op.target = accumulate ? memory.accumulate(to, count) : memory.write(to, count);
  std::vector<double> sum = memory.values(op.source);
  if (accumulate) {
    const auto before = memory.values(op.target);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += before[i];
  }
  memory.run(op);
  // One addition and one rounding, or none at all.
  const bool exact = !accumulate && (from == to || to == Dtype::f32);
  if (exact) {
    EXPECT_EQ(memory.values(op.target), sum);
  }
  expect_close(memory.values(op.target), sum, 2 * kUnit, to);
}

TEST(CopyKernel, ConvertsAndAccumulates) {
  for (const Dtype from : {Dtype::f32, Dtype::bf16}) {
    for (const Dtype to : {Dtype::f32, Dtype::bf16}) {
      for (const bool accumulate : {false, true}) {
        for (const std::int64_t count : {33000, 1003}) check_copy(count, from, to, accumulate);
      }
    }
  }
}

TEST(CopyKernel, RoundsToNearestEvenAndKeepsWhatIsNotFinite) {
  const double infinity = std::numeric_limits<double>::infinity();
  KernelCase memory;
  Copy op;
  // 1 + 2^-8 lies between the bf16 numbers 1 and 1 + 2^-7; 1 + 3 * 2^-8 between 1 + 2^-7 and 1 +
  // 2^-6.
  op.source = memory.put(Dtype::f32, {1 + 0x1p-8, 1 + 3 * 0x1p-8, 1 + 0x1p-8 + 0x1p-20, infinity,
                                      -infinity, std::nan(""), -0.0, 3.4e38});
  op.target = memory.write(Dtype::bf16, 8);
  memory.run(op);
  const auto got = memory.values(op.target);
  EXPECT_EQ(got[0], 1.0);
  EXPECT_EQ(got[1], 1 + 0x1p-6);
  EXPECT_EQ(got[2], 1 + 0x1p-7);
  EXPECT_EQ(got[3], infinity);
  EXPECT_EQ(got[4], -infinity);
  EXPECT_TRUE(std::isnan(got[5]));
  EXPECT_TRUE(got[6] == 0.0 && std::signbit(got[6]));
  EXPECT_EQ(got[7], infinity);
}

TEST(CopyKernel, Integers) {
  KernelCase memory;
  Copy op;
  op.source = memory.put(Dtype::i32, {1, -2, 1 << 30});
  op.target = memory.write(Dtype::i32, 3);
  memory.run(op);
  EXPECT_EQ(memory.values(op.target), memory.values(op.source));
}

void check_permute(std::int64_t width, Dtype from, Dtype to, bool accumulate) {
  SCOPED_TRACE(testing::Message() << width << " " << word(from) << " to " << word(to));
  KernelCase memory;
  Permute op;
  op.outer = 5, op.inner = 7, op.width = width;
  op.source = memory.put_random(from, 35 * width);
  op.target = accumulate ? memory.accumulate(to, 35 * width) : memory.write(to, 35 * width);
  const auto source = memory.values(op.source), before = memory.values(op.target);
  memory.run(op);
  std::vector<double> expected;
  for (std::int64_t i = 0; i < 35 * width; ++i) {
    const std::int64_t inner = i / width / 5, outer = i / width % 5;
    const double value = source[index((outer * 7 + inner) * width + i % width)];
    expected.push_back(value + (accumulate ? before[index(i)] : 0.0));
  }
  expect_close(memory.values(op.target), expected, 2 * kUnit, to);
}

void check_add(std::int64_t width, Dtype from, Dtype to, bool with_bias, bool accumulate) {
  SCOPED_TRACE(testing::Message() << width << " " << word(from) << " to " << word(to));
  constexpr std::int64_t kRows = 5;
  KernelCase memory;
  Add op;
  op.rows = kRows, op.width = width;
  op.source = memory.put_random(from, kRows * width);
  op.addend = memory.put_random(to, kRows * width);
  if (with_bias) op.bias = memory.put_random(from, width);
  op.out = accumulate ? memory.accumulate(to, kRows * width) : memory.write(to, kRows * width);
  const auto source = memory.values(op.source), addend = memory.values(op.addend);
  const auto bias = with_bias ? memory.values(op.bias) : std::vector<double>(index(width));
  const auto before = memory.values(op.out);
  memory.run(op);
  std::vector<double> expected;
  for (std::int64_t i = 0; i < kRows * width; ++i) {
    expected.push_back(source[index(i)] + addend[index(i)] + bias[index(i % width)] +
                       (accumulate ? before[index(i)] : 0.0));
  }
  expect_close(memory.values(op.out), expected, 4 * kUnit, to);
}

TEST(AddKernel, AddsRowsAndABias) {
  for (const bool with_bias : {false, true}) {
    for (const std::int64_t width : {1, 3, 16, 1500}) {
      check_add(width, Dtype::f32, Dtype::f32, with_bias, false);
      check_add(width, Dtype::bf16, Dtype::bf16, with_bias, false);
    }
    check_add(40, Dtype::f32, Dtype::bf16, with_bias, true);
    check_add(40, Dtype::bf16, Dtype::f32, with_bias, false);
  }
}

TEST(PermuteKernel, SwapsTheOuterDimensions) {
  for (const bool accumulate : {false, true}) {
    for (const std::int64_t width : {1, 3, 1500}) {
      check_permute(width, Dtype::f32, Dtype::bf16, accumulate);
    }
    check_permute(16, Dtype::bf16, Dtype::bf16, accumulate);
    check_permute(12, Dtype::f32, Dtype::f32, accumulate);
    check_permute(40, Dtype::bf16, Dtype::f32, accumulate);
  }
}

}  // namespace
}  // namespace fpdt
