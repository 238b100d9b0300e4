// The sinks of attention: merged into its output, and the gradient of their scores.
#include <cmath>

#include "fpdt/cpu/kernels_common.h"

namespace fpdt::cpu {
namespace {

// The number of this rank's first head among those of `sinks`.
template <class Sink>
std::int64_t first_of(const Sink& op, const Frame& frame) {
  return op.head_first.at(frame.rank) % op.all_heads;
}

}  // namespace

void execute(const AttentionSink& op, const Frame& frame) {
  const View sinks = frame.view(op, op.sinks);
  const View o = replacing(frame.view(op, op.o));
  const View lse = replacing(frame.view(op, op.lse));
  const std::int64_t size = op.head_dim;
  const std::int64_t first = first_of(op, frame);
  for_each_row(frame, op.q_rows * op.heads, size, [&](std::int64_t row, std::int32_t worker) {
    const double seen = load_scalar(lse, row);
    const double sink = load_scalar(sinks, (first + row % op.heads) % op.all_heads);
    const double most = std::max(seen, sink);
    const double sum = std::exp(seen - most) + std::exp(sink - most);
    const auto factor = static_cast<float>(std::exp(seen - most) / sum);
    const auto merged = static_cast<float>(most + std::log(sum));
    store(lse, row, 1, &merged);
    float* buffer = frame.scratch(worker);
    for_each_in_row(size, [&](std::int64_t at, std::int64_t n) {
      const float* values = load(o, row * size + at, n, buffer);
      for (std::int64_t i = 0; i < n; ++i) buffer[i] = factor * values[i];
      store(o, row * size + at, n, buffer);
    });
  });
}

void execute(const AttentionSinkGradient& op, const Frame& frame) {
  const View sinks = frame.view(op, op.sinks);
  const View lse = frame.view(op, op.lse);
  const View delta = frame.view(op, op.delta);
  const View dsinks = frame.view(op, op.dsinks);
  const std::int64_t first = first_of(op, frame);
  frame.pool.for_each(op.heads, [&](std::int64_t head, std::int32_t) {
    const std::int64_t number = (first + head) % op.all_heads;
    const double sink = load_scalar(sinks, number);
    double sum = 0;
    for (std::int64_t row = 0; row < op.q_rows; ++row) {
      const std::int64_t at = row * op.heads + head;
      sum -= std::exp(sink - load_scalar(lse, at)) * load_scalar(delta, at);
    }
    const auto gradient = static_cast<float>(sum);
    store(dsinks, number, 1, &gradient);
  });
}

}  // namespace fpdt::cpu
