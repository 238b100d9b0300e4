// Sums over rows, columns and whole buffers, in an order that does not depend on the threads.
#include "fpdt/cpu/kernels_common.h"

namespace fpdt::cpu {
namespace {

constexpr std::int64_t kSumRows = 512;     // rows summed before they are added to the target
constexpr std::int64_t kWaveTasks = 4096;  // partial sums kept at a time

double piece_squares(const View& source, std::int64_t first, std::int64_t end, float* buffer) {
  double sum = 0;
  for (std::int64_t at = first; at < end; at += kPiece) {
    const std::int64_t n = std::min(kPiece, end - at);
    const float* values = load(source, at, n, buffer);
    for (std::int64_t i = 0; i < n; ++i) {
      sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
  }
  return sum;
}

}  // namespace

void execute(const ColumnSum& op, const Frame& frame) {
  const View source = frame.view(op, op.source);
  const View out = frame.view(op, op.out);
  for_each_column_block(
      frame, op.width, [&](std::int64_t first, std::int64_t count, std::int32_t worker) {
        View target = out;
        for (std::int64_t slab = 0; slab < op.rows; slab += kSumRows) {
          std::array<float, kColumns> sums{};
          for (std::int64_t row = slab; row < std::min(op.rows, slab + kSumRows); ++row) {
            const float* values =
                load(source, row * op.width + first, count, frame.scratch(worker));
            for (std::int64_t i = 0; i < count; ++i) sums[static_cast<std::size_t>(i)] += values[i];
          }
          store(target, first, count, sums.data());
          target = accumulating(target);
        }
      });
}

void execute(const SquaredNorm& op, const Frame& frame) {
  const View source = frame.view(op, op.source);
  const View sum = frame.view(op, op.sum);
  double* partial = frame.shared<double>(kWaveTasks);
  const std::int64_t tasks = div_ceil(source.elements, kTaskElements);
  double total = 0;
  for (std::int64_t wave = 0; wave < tasks; wave += kWaveTasks) {
    const std::int64_t count = std::min(kWaveTasks, tasks - wave);
    frame.pool.for_each(count, [&](std::int64_t task, std::int32_t worker) {
      const std::int64_t first = (wave + task) * kTaskElements;
      const std::int64_t end = std::min(source.elements, first + kTaskElements);
      partial[task] = piece_squares(source, first, end, frame.scratch(worker));
    });
    for (std::int64_t task = 0; task < count; ++task) total += partial[task];
  }
  const auto result = static_cast<float>(total);
  store(sum, 0, 1, &result);
}

void execute(const AttentionDelta& op, const Frame& frame) {
  const View o = frame.view(op, op.o);
  const View dout = frame.view(op, op.dout);
  const View delta = frame.view(op, op.delta);
  const std::int64_t size = op.head_dim;
  for_each_row(frame, op.rows * op.heads, size, [&](std::int64_t head, std::int32_t worker) {
    float* buffer = frame.scratch(worker);
    float sum = 0;
    for_each_in_row(size, [&](std::int64_t at, std::int64_t n) {
      const float* a = load(o, head * size + at, n, buffer);
      const float* b = load(dout, head * size + at, n, buffer + kPiece);
      sum += lane_sum(n, [a, b](std::int64_t i) { return a[i] * b[i]; });
    });
    store(delta, head, 1, &sum);
  });
}

}  // namespace fpdt::cpu
