// Norms forward and backward against the formulas row by row.
#include "kernel_case.h"

namespace fpdt {
namespace {

struct NormShape {
  std::int64_t rows, width;
  NormKind kind;
  Dtype dtype = Dtype::f32;
  bool extra = false;  // bias forward; addend and dbias backward, accumulating
  Dtype weights = Dtype::f32;
  Dtype other = dtype;  // of y, or of dy
};

struct RowNorm {
  std::vector<double> normal;  // (x - mean) * scale
  double scale = 0;
};

RowNorm normalise(const std::vector<double>& x, std::int64_t row, const NormShape& s,
                  double epsilon) {
  RowNorm result;
  const double count = static_cast<double>(s.width);
  double mean = 0;
  double squares = 0;
  for (std::int64_t i = 0; i < s.width; ++i) mean += x[index(row * s.width + i)] / count;
  if (s.kind == NormKind::rms) mean = 0;
  for (std::int64_t i = 0; i < s.width; ++i) {
    squares += std::pow(x[index(row * s.width + i)] - mean, 2) / count;
  }
  result.scale = 1 / std::sqrt(squares + epsilon);
  for (std::int64_t i = 0; i < s.width; ++i) {
    result.normal.push_back((x[index(row * s.width + i)] - mean) * result.scale);
  }
  return result;
}

// Sums over rows are f32 sums of some 80 numbers (a piece per lane, or what a thread holds, then
// trees over threads). Their relative error is as many units. Normalised values and weights are of
// the order of one, below 8.
constexpr double kNormError = 8 * 80 * kUnit;

void check_forward(const NormShape& s) {
  SCOPED_TRACE(testing::Message() << s.rows << " x " << s.width << " " << word(s.kind));
  KernelCase memory;
  Norm op;
  op.kind = s.kind, op.rows = s.rows, op.width = s.width, op.epsilon = 1e-5;
  op.x = memory.put_random(s.dtype, s.rows * s.width);
  op.weight = memory.put_random(s.weights, s.width);
  if (s.extra) op.bias = memory.put_random(s.weights, s.width);
  op.y = memory.write(s.other, s.rows * s.width);
  memory.run(op);
  const auto x = memory.values(op.x), weight = memory.values(op.weight);
  const auto bias = s.extra ? memory.values(op.bias) : std::vector<double>(index(s.width), 0.0);
  std::vector<double> y;
  for (std::int64_t row = 0; row < s.rows; ++row) {
    const RowNorm norm = normalise(x, row, s, op.epsilon);
    for (std::int64_t i = 0; i < s.width; ++i) {
      y.push_back(norm.normal[index(i)] * weight[index(i)] + bias[index(i)]);
    }
  }
  expect_close(memory.values(op.y), y, kNormError, s.other);
}

TEST(NormKernel, Forward) {
  for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
    check_forward({3, 33, kind});
    check_forward({1, 1024, kind});
    check_forward({40, 1500, kind, Dtype::f32, true});
    check_forward({5, 100, kind, Dtype::bf16, true});
    check_forward({5, 104, kind, Dtype::bf16, true, Dtype::bf16});
    check_forward({3, 40, kind, Dtype::bf16, false, Dtype::f32, Dtype::f32});
    check_forward({2, 16384, kind, Dtype::bf16, false, Dtype::bf16});
  }
}

void check_backward(const NormShape& s) {
  SCOPED_TRACE(testing::Message() << s.rows << " x " << s.width << " " << word(s.kind));
  KernelCase memory;
  NormBackward op;
  op.kind = s.kind, op.rows = s.rows, op.width = s.width, op.epsilon = 1e-5;
  op.x = memory.put_random(s.dtype, s.rows * s.width);
  op.weight = memory.put_random(s.weights, s.width);
  op.dy = memory.put_random(s.other, s.rows * s.width);
  op.dx = memory.write(s.dtype, s.rows * s.width);
  op.dweight = s.extra ? memory.accumulate(Dtype::f32, s.width) : memory.write(Dtype::f32, s.width);
  std::vector<double> dweight(index(s.width), 0.0), dbias(index(s.width), 0.0), dx;
  if (s.extra) {
    op.addend = memory.put_random(s.dtype, s.rows * s.width);
    op.dbias = memory.accumulate(Dtype::f32, s.width);
    dweight = memory.values(op.dweight);
    dbias = memory.values(op.dbias);
  }
  memory.run(op);
  const auto x = memory.values(op.x), weight = memory.values(op.weight), dy = memory.values(op.dy);
  const auto addend = s.extra ? memory.values(op.addend) : std::vector<double>{};
  for (std::int64_t row = 0; row < s.rows; ++row) {
    const RowNorm norm = normalise(x, row, s, op.epsilon);
    double mean_g = 0;
    double mean_g_n = 0;
    for (std::int64_t i = 0; i < s.width; ++i) {
      const double g = dy[index(row * s.width + i)] * weight[index(i)];
      mean_g += g / static_cast<double>(s.width);
      mean_g_n += g * norm.normal[index(i)] / static_cast<double>(s.width);
      dweight[index(i)] += dy[index(row * s.width + i)] * norm.normal[index(i)];
      dbias[index(i)] += dy[index(row * s.width + i)];
    }
    if (s.kind == NormKind::rms) mean_g = 0;
    for (std::int64_t i = 0; i < s.width; ++i) {
      const double g = dy[index(row * s.width + i)] * weight[index(i)];
      const double extra = s.extra ? addend[index(row * s.width + i)] : 0.0;
      dx.push_back(norm.scale * (g - mean_g - norm.normal[index(i)] * mean_g_n) + extra);
    }
  }
  expect_close(memory.values(op.dx), dx, 4 * kNormError, s.dtype);
  const double sum_error =
      static_cast<double>(s.rows) * (kNormError + static_cast<double>(s.rows) * kUnit);
  expect_close(memory.values(op.dweight), dweight, sum_error, Dtype::f32);
  if (s.extra) expect_close(memory.values(op.dbias), dbias, sum_error, Dtype::f32);
}

TEST(NormKernel, Backward) {
  for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
    check_backward({3, 33, kind});
    check_backward({2, 1500, kind, Dtype::f32, true});
    check_backward({6, 130, kind, Dtype::bf16, true});
    check_backward({6, 136, kind, Dtype::bf16, true, Dtype::bf16});
    check_backward({9, 40, kind, Dtype::bf16, false, Dtype::bf16, Dtype::f32});
  }
  check_backward({513, 20, NormKind::rms});  // more rows than are summed at once
  check_backward({520, 7, NormKind::layer, Dtype::f32, true});
  check_backward({2, 10000, NormKind::layer, Dtype::bf16, true});
  // Widths whose sums fill 48 KiB of a GPU's shared memory.
  check_backward({2, 6144, NormKind::layer, Dtype::bf16, true});
  check_backward({2, 12288, NormKind::rms, Dtype::bf16});
}

TEST(NormKernel, BackwardWithoutWeightGradientsAndInPlace) {
  KernelCase memory;
  NormBackward op;
  op.rows = 5, op.width = 40;
  op.x = memory.put_random(Dtype::f32, 200);
  op.weight = memory.put_random(Dtype::f32, 40);
  op.dy = memory.put_random(Dtype::f32, 200);
  op.dx = memory.write(Dtype::f32, 200);
  memory.run(op);
  const auto apart = memory.values(op.dx);
  op.dx.operand = op.dy;
  op.dweight = memory.write(Dtype::f32, 40);
  memory.run(op);
  EXPECT_EQ(memory.values(op.dx), apart);
}

// Columns [first, first + width) of rows.
std::vector<double> columns_of(const std::vector<double>& values, std::int64_t stride,
                               std::int64_t first, std::int64_t width) {
  std::vector<double> cut;
  for (std::size_t row = 0; row < values.size(); row += index(stride)) {
    for (std::int64_t i = 0; i < width; ++i) cut.push_back(values[row + index(first + i)]);
  }
  return cut;
}

// The same bits as a norm of those columns alone, and the other columns stay.
TEST(NormKernel, ColumnsInPlace) {
  constexpr std::int64_t kRows = 515, kStride = 70, kFirst = 24, kWidth = 33;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    KernelCase memory;
    const auto cut = [&](const Operand& of) {
      return columns_of(memory.values(of), kStride, kFirst, kWidth);
    };
    NormColumns op;
    op.rows = kRows, op.stride = kStride, op.width = kWidth, op.column_first = kFirst;
    op.weight = memory.put_random(dtype, kWidth);
    op.values = memory.accumulate(dtype, kRows * kStride);
    NormColumnsBackward back;
    back.rows = kRows, back.stride = kStride, back.width = kWidth, back.column_first = kFirst;
    back.weight = op.weight;
    back.x = memory.put(dtype, memory.values(op.values));
    back.gradient = memory.accumulate(dtype, kRows * kStride);
    back.dweight = memory.write(Dtype::f32, kWidth);
    Norm apart;
    apart.rows = kRows, apart.width = kWidth;
    apart.weight = op.weight;
    apart.x = memory.put(dtype, cut(op.values.operand));
    apart.y = memory.write(dtype, kRows * kWidth);
    NormBackward back_apart;
    back_apart.rows = kRows, back_apart.width = kWidth;
    back_apart.weight = op.weight;
    back_apart.x = apart.x;
    back_apart.dy = memory.put(dtype, cut(back.gradient.operand));
    back_apart.dx = memory.write(dtype, kRows * kWidth);
    back_apart.dweight = memory.write(Dtype::f32, kWidth);
    const auto before = memory.values(op.values), gradient_before = memory.values(back.gradient);
    memory.run(op);
    memory.run(back);
    memory.run(apart);
    memory.run(back_apart);
    EXPECT_EQ(cut(op.values.operand), memory.values(apart.y));
    EXPECT_EQ(cut(back.gradient.operand), memory.values(back_apart.dx));
    EXPECT_EQ(memory.values(back.dweight), memory.values(back_apart.dweight));
    for (const auto& [first, width] : {std::pair(std::int64_t{0}, kFirst),
                                       std::pair(kFirst + kWidth, kStride - kFirst - kWidth)}) {
      EXPECT_EQ(columns_of(memory.values(op.values), kStride, first, width),
                columns_of(before, kStride, first, width));
      EXPECT_EQ(columns_of(memory.values(back.gradient), kStride, first, width),
                columns_of(gradient_before, kStride, first, width));
    }
  }
}

}  // namespace
}  // namespace fpdt
