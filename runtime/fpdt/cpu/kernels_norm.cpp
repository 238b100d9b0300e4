// RMS norm (Zhang and Sennrich, arXiv 1910.07467) and layer norm (Ba et al., arXiv 1607.06450).
//
// With r = 1 / sqrt(mean((x - c)^2) + epsilon), c the row's mean (0 for RMS), and n = (x - c) r:
//   y = n w + b,   dx = r (g - [mean(g)] - n mean(g n)) with g = dy w ([] for layer norm only),
//   dw = sum over rows of dy n,   db = sum over rows of dy.
//
// The rows may be columns of wider ones.
#include <cmath>

#include "fpdt/cpu/kernels_common.h"

namespace fpdt::cpu {
namespace {

// Rows in a slab. The backward kernel keeps their statistics between its passes, and sums their
// weight gradients before it adds them to the target.
constexpr std::int64_t kSlabRows = 512;

// What norms of rows and of columns share.
struct Shape {
  NormKind kind;
  double epsilon;
  std::int64_t rows, width, stride, first;

  // The first element of a row.
  [[nodiscard]] std::int64_t row(std::int64_t i) const { return i * stride + first; }
};
template <class Op>
Shape shape_of_rows(const Op& op) {
  return {op.kind, op.epsilon, op.rows, op.width, op.width, 0};
}
template <class Op>
Shape shape_of_columns(const Op& op) {
  return {NormKind::rms, op.epsilon, op.rows, op.width, op.stride, op.column_first};
}

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

Statistics row_statistics(const View& x, std::int64_t row, const Shape& s, const Pieces& pieces) {
  const auto count = static_cast<double>(s.width);
  const std::int64_t from = s.row(row);
  Statistics result;
  if (s.kind == NormKind::layer) {
    double sum = 0;
    for_each_in_row(s.width, [&](std::int64_t at, std::int64_t n) {
      const float* values = load(x, from + at, n, pieces.x);
      sum += static_cast<double>(lane_sum(n, [values](std::int64_t i) { return values[i]; }));
    });
    result.mean = static_cast<float>(sum / count);
  }
  double squares = 0;
  for_each_in_row(s.width, [&](std::int64_t at, std::int64_t n) {
    const float* values = load(x, from + at, n, pieces.x);
    squares += static_cast<double>(lane_sum(n, [values, mean = result.mean](std::int64_t i) {
      return (values[i] - mean) * (values[i] - mean);
    }));
  });
  result.scale = static_cast<float>(1.0 / std::sqrt(squares / count + s.epsilon));
  return result;
}

struct Backward {
  Shape shape;
  View x, weight, dy, addend, dx, dweight, dbias;
};

Statistics backward_statistics(const Backward& b, std::int64_t row, const Pieces& pieces) {
  const std::int64_t width = b.shape.width, from = b.shape.row(row);
  Statistics result = row_statistics(b.x, row, b.shape, pieces);
  double sum = 0;
  double product = 0;
  for_each_in_row(width, [&](std::int64_t at, std::int64_t n) {
    const float* x = load(b.x, from + at, n, pieces.x);
    const float* w = load(b.weight, at, n, pieces.weight);
    const float* dy = load(b.dy, from + at, n, pieces.dy);
    sum += static_cast<double>(lane_sum(n, [=](std::int64_t i) { return dy[i] * w[i]; }));
    product += static_cast<double>(lane_sum(
        n, [=, mean = result.mean](std::int64_t i) { return dy[i] * w[i] * (x[i] - mean); }));
  });
  const auto count = static_cast<double>(width);
  if (b.shape.kind == NormKind::layer) result.mean_g = static_cast<float>(sum / count);
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
    const float* x = load(b.x, b.shape.row(row) + first, count, pieces.x);
    const float* dy = load(b.dy, b.shape.row(row) + first, count, pieces.dy);
    for (std::int64_t i = 0; i < count; ++i) {
      dweight[i] += dy[i] * ((x[i] - s.mean) * s.scale);
      dbias[i] += dy[i];
    }
  }
  if (present(b.dweight)) store(b.dweight, first, count, dweight);
  if (present(b.dbias)) store(b.dbias, first, count, dbias);
}

void write_dx(const Backward& b, std::int64_t row, const Statistics& s, const Pieces& pieces) {
  const std::int64_t from = b.shape.row(row);
  for_each_in_row(b.shape.width, [&](std::int64_t at, std::int64_t n) {
    const float* x = load(b.x, from + at, n, pieces.x);
    const float* w = load(b.weight, at, n, pieces.weight);
    const float* dy = load(b.dy, from + at, n, pieces.dy);
    float* out = pieces.out;
    for (std::int64_t i = 0; i < n; ++i) {
      const float normal = (x[i] - s.mean) * s.scale;
      out[i] = s.scale * (dy[i] * w[i] - s.mean_g - normal * s.mean_g_n);
    }
    if (present(b.addend)) {
      const float* addend = load(b.addend, from + at, n, pieces.addend);
      for (std::int64_t i = 0; i < n; ++i) out[i] += addend[i];
    }
    store(b.dx, from + at, n, out);
  });
}

// y = norm(x) * weight + bias.
void norm(const Shape& shape, const View& x, const View& weight, const View& bias, const View& y,
          const Frame& frame) {
  for_each_row(frame, shape.rows, shape.width, [&](std::int64_t row, std::int32_t worker) {
    const Pieces pieces(frame.scratch(worker));
    const Statistics s = row_statistics(x, row, shape, pieces);
    for_each_in_row(shape.width, [&](std::int64_t at, std::int64_t n) {
      const float* values = load(x, shape.row(row) + at, n, pieces.x);
      const float* w = load(weight, at, n, pieces.weight);
      float* out = pieces.out;
      for (std::int64_t i = 0; i < n; ++i) out[i] = (values[i] - s.mean) * s.scale * w[i];
      if (present(bias)) {
        const float* b = load(bias, at, n, pieces.addend);
        for (std::int64_t i = 0; i < n; ++i) out[i] += b[i];
      }
      store(y, shape.row(row) + at, n, out);
    });
  });
}

// Handles slab by slab: statistics by rows, weight gradients by columns, dx by rows. dx comes last,
// because it may overwrite dy.
void norm_backward(Backward b, const Frame& frame) {
  const std::int64_t all = b.shape.rows, width = b.shape.width;
  Statistics* slab = frame.shared<Statistics>(kSlabRows);
  for (std::int64_t first = 0; first < all; first += kSlabRows) {
    const std::int64_t rows = std::min(kSlabRows, all - first);
    for_each_row(frame, rows, width, [&](std::int64_t i, std::int32_t worker) {
      slab[i] = backward_statistics(b, first + i, Pieces(frame.scratch(worker)));
    });
    if (present(b.dweight) || present(b.dbias)) {
      for_each_column_block(
          frame, width, [&](std::int64_t column, std::int64_t count, std::int32_t worker) {
            sum_columns(b, first, first + rows, slab, column, count, Pieces(frame.scratch(worker)));
          });
    }
    for_each_row(frame, rows, width, [&](std::int64_t i, std::int32_t worker) {
      write_dx(b, first + i, slab[i], Pieces(frame.scratch(worker)));
    });
    b.dweight = accumulating(b.dweight);
    b.dbias = accumulating(b.dbias);
  }
}

}  // namespace

void execute(const Norm& op, const Frame& frame) {
  norm(shape_of_rows(op), frame.view(op, op.x), frame.view(op, op.weight), frame.view(op, op.bias),
       frame.view(op, op.y), frame);
}

void execute(const NormBackward& op, const Frame& frame) {
  norm_backward({shape_of_rows(op), frame.view(op, op.x), frame.view(op, op.weight),
                 frame.view(op, op.dy), frame.view(op, op.addend), frame.view(op, op.dx),
                 frame.view(op, op.dweight), frame.view(op, op.dbias)},
                frame);
}

// In place: each element is read before it is replaced.
void execute(const NormColumns& op, const Frame& frame) {
  const View values = replacing(frame.view(op, op.values));
  norm(shape_of_columns(op), values, frame.view(op, op.weight), {}, values, frame);
}

void execute(const NormColumnsBackward& op, const Frame& frame) {
  const View gradient = replacing(frame.view(op, op.gradient));
  norm_backward({shape_of_columns(op),
                 frame.view(op, op.x),
                 frame.view(op, op.weight),
                 gradient,
                 {},
                 gradient,
                 frame.view(op, op.dweight),
                 {}},
                frame);
}

}  // namespace fpdt::cpu
