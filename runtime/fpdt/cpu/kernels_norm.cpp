// RMS norm (Zhang and Sennrich, arXiv 1910.07467) and layer norm (Ba et al., arXiv 1607.06450).
//
// With r = 1 / sqrt(mean((x - c)^2) + epsilon), c the row's mean (0 for RMS), and n = (x - c) r:
//   y = n w + b,   dx = r (g - [mean(g)] - n mean(g n)) with g = dy w ([] for layer norm only),
//   dw = sum over rows of dy n,   db = sum over rows of dy.
#include <cmath>

#include "fpdt/cpu/kernels_common.h"

namespace fpdt::cpu {
namespace {

// Rows in a slab. The backward kernel keeps their statistics between its passes, and sums their
// weight gradients before it adds them to the target.
constexpr std::int64_t kSlabRows = 512;

struct Statistics {
  float mean = 0;
  float scale = 0;   // r
  float mean_g = 0;  // backward only
  float mean_g_n = 0;
};

// Scratch of one thread: five pieces.
struct Pieces {
  explicit Pieces(float* scratch)
      : x(scratch),
        weight(x + kPiece),
        dy(weight + kPiece),
        addend(dy + kPiece),
        out(addend + kPiece) {}
  float *x, *weight, *dy, *addend, *out;
};

Statistics row_statistics(const View& x, std::int64_t row, std::int64_t width, NormKind kind,
                          double epsilon, const Pieces& pieces) {
  const auto count = static_cast<double>(width);
  Statistics result;
  if (kind == NormKind::layer) {
    double sum = 0;
    for_each_in_row(width, [&](std::int64_t at, std::int64_t n) {
      const float* values = load(x, row * width + at, n, pieces.x);
      sum += static_cast<double>(lane_sum(n, [values](std::int64_t i) { return values[i]; }));
    });
    result.mean = static_cast<float>(sum / count);
  }
  double squares = 0;
  for_each_in_row(width, [&](std::int64_t at, std::int64_t n) {
    const float* values = load(x, row * width + at, n, pieces.x);
    squares += static_cast<double>(lane_sum(n, [values, mean = result.mean](std::int64_t i) {
      return (values[i] - mean) * (values[i] - mean);
    }));
  });
  result.scale = static_cast<float>(1.0 / std::sqrt(squares / count + epsilon));
  return result;
}

struct Backward {
  const NormBackward& op;
  View x, weight, dy, addend, dx, dweight, dbias;
};

Statistics backward_statistics(const Backward& b, std::int64_t row, const Pieces& pieces) {
  const std::int64_t width = b.op.width;
  Statistics result = row_statistics(b.x, row, width, b.op.kind, b.op.epsilon, pieces);
  double sum = 0;
  double product = 0;
  for_each_in_row(width, [&](std::int64_t at, std::int64_t n) {
    const float* x = load(b.x, row * width + at, n, pieces.x);
    const float* w = load(b.weight, at, n, pieces.weight);
    const float* dy = load(b.dy, row * width + at, n, pieces.dy);
    sum += static_cast<double>(lane_sum(n, [=](std::int64_t i) { return dy[i] * w[i]; }));
    product += static_cast<double>(lane_sum(
        n, [=, mean = result.mean](std::int64_t i) { return dy[i] * w[i] * (x[i] - mean); }));
  });
  const auto count = static_cast<double>(width);
  if (b.op.kind == NormKind::layer) result.mean_g = static_cast<float>(sum / count);
  result.mean_g_n = static_cast<float>(product * static_cast<double>(result.scale) / count);
  return result;
}

// dweight and dbias of columns [first, +count) over the slab's rows.
void sum_columns(const Backward& b, std::int64_t row_first, std::int64_t row_end,
                 const Statistics* slab, std::int64_t first, std::int64_t count,
                 const Pieces& pieces) {
  std::array<float, kColumns> weight_sums{};
  std::array<float, kColumns> bias_sums{};
  float* dweight = weight_sums.data();
  float* dbias = bias_sums.data();
  for (std::int64_t row = row_first; row < row_end; ++row) {
    const Statistics& s = slab[row - row_first];
    const float* x = load(b.x, row * b.op.width + first, count, pieces.x);
    const float* dy = load(b.dy, row * b.op.width + first, count, pieces.dy);
    for (std::int64_t i = 0; i < count; ++i) {
      dweight[i] += dy[i] * ((x[i] - s.mean) * s.scale);
      dbias[i] += dy[i];
    }
  }
  if (present(b.dweight)) store(b.dweight, first, count, dweight);
  if (present(b.dbias)) store(b.dbias, first, count, dbias);
}

void write_dx(const Backward& b, std::int64_t row, const Statistics& s, const Pieces& pieces) {
  const std::int64_t width = b.op.width;
  for_each_in_row(width, [&](std::int64_t at, std::int64_t n) {
    const float* x = load(b.x, row * width + at, n, pieces.x);
    const float* w = load(b.weight, at, n, pieces.weight);
    const float* dy = load(b.dy, row * width + at, n, pieces.dy);
    float* out = pieces.out;
    for (std::int64_t i = 0; i < n; ++i) {
      const float normal = (x[i] - s.mean) * s.scale;
      out[i] = s.scale * (dy[i] * w[i] - s.mean_g - normal * s.mean_g_n);
    }
    if (present(b.addend)) {
      const float* addend = load(b.addend, row * width + at, n, pieces.addend);
      for (std::int64_t i = 0; i < n; ++i) out[i] += addend[i];
    }
    store(b.dx, row * width + at, n, out);
  });
}

}  // namespace

void execute(const Norm& op, const Frame& frame) {
  const View x = frame.view(op, op.x);
  const View weight = frame.view(op, op.weight);
  const View bias = frame.view(op, op.bias);
  const View y = frame.view(op, op.y);
  for_each_row(frame, op.rows, op.width, [&](std::int64_t row, std::int32_t worker) {
    const Pieces pieces(frame.scratch(worker));
    const Statistics s = row_statistics(x, row, op.width, op.kind, op.epsilon, pieces);
    for_each_in_row(op.width, [&](std::int64_t at, std::int64_t n) {
      const float* values = load(x, row * op.width + at, n, pieces.x);
      const float* w = load(weight, at, n, pieces.weight);
      float* out = pieces.out;
      for (std::int64_t i = 0; i < n; ++i) out[i] = (values[i] - s.mean) * s.scale * w[i];
      if (present(bias)) {
        const float* b = load(bias, at, n, pieces.addend);
        for (std::int64_t i = 0; i < n; ++i) out[i] += b[i];
      }
      store(y, row * op.width + at, n, out);
    });
  });
}

// Handles slab by slab: statistics by rows, weight gradients by columns, dx by rows. dx comes last,
// because it may overwrite dy.
void execute(const NormBackward& op, const Frame& frame) {
  Backward b{op,
             frame.view(op, op.x),
             frame.view(op, op.weight),
             frame.view(op, op.dy),
             frame.view(op, op.addend),
             frame.view(op, op.dx),
             frame.view(op, op.dweight),
             frame.view(op, op.dbias)};
  Statistics* slab = frame.shared<Statistics>(kSlabRows);
  for (std::int64_t first = 0; first < op.rows; first += kSlabRows) {
    const std::int64_t rows = std::min(kSlabRows, op.rows - first);
    for_each_row(frame, rows, op.width, [&](std::int64_t i, std::int32_t worker) {
      slab[i] = backward_statistics(b, first + i, Pieces(frame.scratch(worker)));
    });
    if (present(b.dweight) || present(b.dbias)) {
      for_each_column_block(
          frame, op.width, [&](std::int64_t column, std::int64_t count, std::int32_t worker) {
            sum_columns(b, first, first + rows, slab, column, count, Pieces(frame.scratch(worker)));
          });
    }
    for_each_row(frame, rows, op.width, [&](std::int64_t i, std::int32_t worker) {
      write_dx(b, first + i, slab[i], Pieces(frame.scratch(worker)));
    });
    b.dweight = accumulating(b.dweight);
    b.dbias = accumulating(b.dbias);
  }
}

}  // namespace fpdt::cpu
