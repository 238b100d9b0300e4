// The sinks of attention: merged into its output, and the gradient of their scores.
#include <cmath>

#include "fpdt/cuda/kernels.h"
#include "fpdt/cuda/sums.h"

namespace fpdt::cuda {
namespace {

constexpr int kThreads = 256;

// The score of each head of this rank.
template <class T>
struct Scores {
  const T* sinks;
  std::int64_t first, all;  // the number of the first head, and of all in `sinks`

  [[nodiscard]] __device__ __forceinline__ std::int64_t number(std::int64_t head) const {
    return (first + head) % all;
  }
  [[nodiscard]] __device__ __forceinline__ float operator()(std::int64_t head) const {
    return to_float(sinks[number(head)]);
  }
};

template <class T, class Op>
Scores<T> scores_of(const Op& op, const Frame& frame, const View& sinks) {
  FPDT_ASSERT(sinks.elements >= op.all_heads && op.all_heads >= op.heads);
  return {elements<T>(sinks), op.head_first.at(frame.rank) % op.all_heads, op.all_heads};
}

// Eight lanes share a row of a head. Each takes kCount elements at a time. One of them computes the
// factor, since it also replaces the lse that it is made of.
//
// Napkin: reads and writes o once, 8 bytes per element in f32; bound by memory. An H200 reaches
// 3.85 TB/s.
template <int kCount, class O, class T>
__global__ void merge_sinks(std::int64_t rows, std::int64_t heads, std::int64_t size,
                            Scores<T> scores, O* o, float* lse) {
  constexpr int kLanes = 8;
  const std::int64_t row = global_thread() / kLanes;
  const int part = static_cast<int>(threadIdx.x % kLanes);
  float factor = 0;
  if (row < rows && part == 0) {
    const float seen = lse[row];
    const float sink = scores(row % heads);
    const float most = fmaxf(seen, sink);
    const float sum = expf(seen - most) + expf(sink - most);
    factor = expf(seen - most) / sum;
    lse[row] = most + logf(sum);
  }
  factor = __shfl_sync(kAllLanes, factor, lane() - part);
  if (row >= rows) return;
  for (std::int64_t at = part * kCount; at < size; at += kLanes * kCount) {
    float values[kCount];
    load_pack(o + row * size + at, values);
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] *= factor;
    store_pack(o + row * size + at, values);
  }
}

// A block adds up one head, in double precision.
//
// Napkin: reads 8 bytes per row and head, from 32-byte sectors that other blocks read as well. 64 K
// rows of 8 heads are 4 MB, which 8 blocks read in about 50 us: nothing beside the rows' attention.
// An H200 reads 8 MB in 22 us.
template <class T>
__global__ void __launch_bounds__(kThreads)
    add_sinks(std::int64_t rows, std::int64_t heads, Scores<T> scores, const float* lse,
              const float* delta, float* dsinks) {
  __shared__ double room[kWarp];
  const std::int64_t head = blockIdx.x;
  const float sink = scores(head);
  double sum = 0;
  for (std::int64_t row = threadIdx.x; row < rows; row += kThreads) {
    const std::int64_t at = row * heads + head;
    sum -= static_cast<double>(expf(sink - lse[at]) * delta[at]);
  }
  sum = block_sum(sum, room);
  if (threadIdx.x == 0) put(dsinks + scores.number(head), static_cast<float>(sum), true);
}

}  // namespace

void execute(const AttentionSink& op, const Frame& frame) {
  const View sinks = frame.view(op, op.sinks);
  const View o = frame.view(op, op.o);
  const View lse = frame.view(op, op.lse);
  const std::int64_t rows = op.q_rows * op.heads;
  FPDT_ASSERT(o.elements >= rows * op.head_dim);
  FPDT_ASSERT(lse.elements >= rows && lse.dtype == Dtype::f32);
  with_float_type(o.dtype, [&](auto o_type) {
    with_float_type(sinks.dtype, [&](auto type) {
      using O = decltype(o_type);
      using T = decltype(type);
      const auto kernel = op.head_dim % 4 == 0 ? merge_sinks<4, O, T> : merge_sinks<1, O, T>;
      launch(kernel, grid_of(rows, kThreads / 8), kThreads, 0, frame.stream, rows, op.heads,
             op.head_dim, scores_of<T>(op, frame, sinks), elements<O>(o), elements<float>(lse));
    });
  });
}

void execute(const AttentionSinkGradient& op, const Frame& frame) {
  const View sinks = frame.view(op, op.sinks);
  const View lse = frame.view(op, op.lse);
  const View delta = frame.view(op, op.delta);
  const View dsinks = frame.view(op, op.dsinks);
  FPDT_ASSERT(std::min(lse.elements, delta.elements) >= op.q_rows * op.heads);
  FPDT_ASSERT(dsinks.elements >= op.all_heads && dsinks.dtype == Dtype::f32);
  FPDT_ASSERT(accumulates(dsinks));
  with_float_type(sinks.dtype, [&](auto type) {
    using T = decltype(type);
    launch(add_sinks<T>, grid_of(op.heads, 1), kThreads, 0, frame.stream, op.q_rows, op.heads,
           scores_of<T>(op, frame, sinks), elements<float>(lse), elements<float>(delta),
           elements<float>(dsinks));
  });
}

}  // namespace fpdt::cuda
