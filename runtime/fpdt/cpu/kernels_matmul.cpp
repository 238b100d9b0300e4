// out = a * b + bias + addend, in tiles.
//
// A task is one tile of the output. It walks the whole of k in order, so the sum of an element does
// not depend on the number of threads. f32 operands are read in place; bf16 ones are widened block
// by block.
#include "fpdt/cpu/kernels_matmul.h"

#include "fpdt/base/assert.h"

// A heap allocation inside Eigen fails this assertion (EIGEN_NO_MALLOC), in release too.
#define eigen_assert(condition) FPDT_ASSERT(condition)
#include <Eigen/Core>

#include "fpdt/cpu/kernels_common.h"

namespace fpdt::cpu {
namespace {

constexpr std::int64_t kTileRows = 128;
constexpr std::int64_t kTileColumns = 256;
constexpr std::int64_t kTileDepth = 384;
static_assert(kTileRows * kTileDepth + kTileDepth * kTileColumns + kTileRows * kTileColumns +
                  kPiece <=
              kThreadFloats);

template <int Order>
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Order>;
template <int Order>
using ConstMap = Eigen::Map<const Matrix<Order>, Eigen::Unaligned, Eigen::OuterStride<>>;
using Output = Eigen::Map<Matrix<Eigen::RowMajor>, Eigen::Unaligned, Eigen::OuterStride<>>;

template <int OrderA, int OrderB>
void product(Block a, Block b, std::int64_t k, Output& out, bool add) {
  const ConstMap<OrderA> lhs(a.data, out.rows(), k, Eigen::OuterStride<>(a.stride));
  const ConstMap<OrderB> rhs(b.data, k, out.cols(), Eigen::OuterStride<>(b.stride));
  if (add) {
    out.noalias() += lhs * rhs;
  } else {
    out.noalias() = lhs * rhs;
  }
}

void product(Layout a_layout, Block a, Layout b_layout, Block b, std::int64_t k, Output out,
             bool add) {
  constexpr int kRow = Eigen::RowMajor;
  constexpr int kColumn = Eigen::ColMajor;
  const bool a_plain = a_layout == Layout::plain;
  const bool b_plain = b_layout == Layout::plain;
  if (a_plain && b_plain) product<kRow, kRow>(a, b, k, out, add);
  if (a_plain && !b_plain) product<kRow, kColumn>(a, b, k, out, add);
  if (!a_plain && b_plain) product<kColumn, kRow>(a, b, k, out, add);
  if (!a_plain && !b_plain) product<kColumn, kColumn>(a, b, k, out, add);
}

struct Operands {
  View a, b, bias, addend, out;
};

// Adds bias and addend to one row of a tile and stores it.
void finish_row(const Operands& views, float* values, std::int64_t offset, std::int64_t column,
                std::int64_t columns, float* buffer) {
  if (present(views.bias)) {
    const float* bias = load(views.bias, column, columns, buffer);
    for (std::int64_t j = 0; j < columns; ++j) values[j] += bias[j];
  }
  if (present(views.addend)) {
    const float* addend = load(views.addend, offset, columns, buffer);
    for (std::int64_t j = 0; j < columns; ++j) values[j] += addend[j];
  }
  store(views.out, offset, columns, values);
}

}  // namespace

Block block_of(const View& view, std::int64_t width, std::int64_t row, std::int64_t rows,
               std::int64_t column, std::int64_t columns, float* buffer) {
  if (view.dtype == Dtype::f32) {
    load(view, (row + rows - 1) * width + column, columns, buffer);  // the last row lies inside
    return {load(view, row * width + column, columns, buffer), width};
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    load(view, (row + i) * width + column, columns, buffer + i * columns);
  }
  return {buffer, columns};
}

void multiply_add(Layout a_layout, Block a, Layout b_layout, Block b, std::int64_t m,
                  std::int64_t n, std::int64_t k, float* out, std::int64_t out_stride) {
  product(a_layout, a, b_layout, b, k, Output(out, m, n, Eigen::OuterStride<>(out_stride)), true);
}

void multiply(Layout a_layout, Block a, Layout b_layout, Block b, std::int64_t m, std::int64_t n,
              std::int64_t k, float* out, std::int64_t out_stride) {
  product(a_layout, a, b_layout, b, k, Output(out, m, n, Eigen::OuterStride<>(out_stride)), false);
}

void execute(const Matmul& op, const Frame& frame) {
  const Operands views{frame.view(op, op.a), frame.view(op, op.b), frame.view(op, op.bias),
                       frame.view(op, op.addend), frame.view(op, op.out)};
  const Layout a_layout = op.transpose_a ? Layout::transposed : Layout::plain;
  const Layout b_layout = op.transpose_b ? Layout::transposed : Layout::plain;
  const std::int64_t row_tiles = div_ceil(op.m, kTileRows);
  const std::int64_t tiles = row_tiles * div_ceil(op.n, kTileColumns);
  frame.pool.for_each(tiles, [&](std::int64_t tile, std::int32_t worker) {
    const std::int64_t row = tile % row_tiles * kTileRows;
    const std::int64_t column = tile / row_tiles * kTileColumns;
    const std::int64_t rows = std::min(kTileRows, op.m - row);
    const std::int64_t columns = std::min(kTileColumns, op.n - column);
    float* a_buffer = frame.scratch(worker);
    float* b_buffer = a_buffer + kTileRows * kTileDepth;
    float* sums = b_buffer + kTileDepth * kTileColumns;
    float* buffer = sums + kTileRows * kTileColumns;
    for (std::int64_t at = 0; at < op.k; at += kTileDepth) {
      const std::int64_t depth = std::min(kTileDepth, op.k - at);
      const Block a = op.transpose_a ? block_of(views.a, op.m, at, depth, row, rows, a_buffer)
                                     : block_of(views.a, op.k, row, rows, at, depth, a_buffer);
      const Block b = op.transpose_b
                          ? block_of(views.b, op.k, column, columns, at, depth, b_buffer)
                          : block_of(views.b, op.n, at, depth, column, columns, b_buffer);
      if (at == 0) {
        multiply(a_layout, a, b_layout, b, rows, columns, depth, sums, columns);
      } else {
        multiply_add(a_layout, a, b_layout, b, rows, columns, depth, sums, columns);
      }
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      finish_row(views, sums + i * columns, (row + i) * op.n + column, column, columns, buffer);
    }
  });
}

}  // namespace fpdt::cpu
