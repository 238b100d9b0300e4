// Cross-entropy, whole and in vocabulary tiles.
//
// A NaN among the logits of a row makes the row's sum NaN, and with it the loss.
#include <cmath>
#include <limits>

#include "fpdt/base/math.h"
#include "fpdt/cuda/kernels.h"
#include "fpdt/cuda/packs.h"
#include "fpdt/cuda/sums.h"

namespace fpdt::cuda {
namespace {

constexpr int kThreads = 256;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr float kLog2E = 1.44269504F;

// e^x, exactly 1 at 0 and 0 at -infinity. The product's error of |x| units matters little after
// e^x.
__device__ __forceinline__ float exponential(float x) { return fast_exp2(x * kLog2E); }

// cap * tanh(x / cap), or x without a cap.
__device__ __forceinline__ float capped(float x, float cap) {
  return cap > 0 ? cap - 2 * cap / (1 + exponential(2 / cap * x)) : x;
}

// Per row: the maximum, the sum of exponentials relative to it, the target's logit.
constexpr std::int64_t kStatistics = 3;

// The number that exponentials are relative to: the maximum, or 0 if all logits are -infinity.
__device__ __forceinline__ float base_of(float maximum) {
  return maximum == kMinusInfinity ? 0.0F : maximum;
}

// Combines the threads' maxima and sums. Every lane of the warp gets the result.
__device__ __forceinline__ void join_lanes(float& maximum, float& sum) {
  const float whole = warp_max(maximum);
  sum = warp_sum(sum * exponential(maximum - base_of(whole)));
  maximum = whole;
}

// The (maximum, sum) of the part of a row that one of its kEach threads reads, 16 values per round.
template <class T, int kEach, class Whole>
__device__ __forceinline__ void read_row(Whole whole, const T* logits, std::int64_t width,
                                         unsigned lane, float cap, float& maximum, float& sum) {
  constexpr int N = kPack<T>;
  constexpr int kRound = 16 / N;
  for (std::int64_t first = lane * N; first < width; first += kRound * kEach * N) {
    float values[kRound][N];
    float most = kMinusInfinity;
#pragma unroll
    for (int j = 0; j < kRound; ++j) {
      const std::int64_t at = first + j * kEach * N;
#pragma unroll
      for (int i = 0; i < N; ++i) values[j][i] = kMinusInfinity;
      if (at < width) load_values(whole, logits + at, width - at, values[j], kMinusInfinity);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (cap > 0 && at + i < width) values[j][i] = capped(values[j][i], cap);
      }
    }
#pragma unroll
    for (int i = 0; i < kRound * N; ++i) most = fmaxf(most, values[i / N][i % N]);
    if (most > maximum) {
      sum *= exponential(maximum - most);
      maximum = most;
    }
    const float base = base_of(maximum);
#pragma unroll
    for (int i = 0; i < kRound * N; ++i) sum += exponential(values[i / N][i % N] - base);
  }
}

// Napkin: reads sizeof(T) bytes per logit, once; bound by memory. One exponential per logit: at 16
// per cycle and multiprocessor, 132 of them compute 3.7e12 per second, while 4.8 TB/s bring 2.4e12
// logits of bf16.
//
// kEach threads read a row: a warp, or the whole block.
template <class T, int kEach>
__global__ void row_statistics(const T* logits, const std::int32_t* labels, float* statistics,
                               std::int64_t rows, std::int64_t vocab_first, std::int64_t width,
                               float cap, bool packed, bool accumulate) {
  const std::int64_t row =
      static_cast<std::int64_t>(blockIdx.x) * (kThreads / kEach) + threadIdx.x / kEach;
  const unsigned lane = threadIdx.x % kEach;
  if (row >= rows) return;  // only whole warps leave, and only from blocks without barriers
  const bool counts = labels[row] >= 0;
  float maximum = kMinusInfinity, sum = 0;
  if (counts) {
    with_whole(packed, [&](auto whole) {
      read_row<T, kEach>(whole, logits + row * width, width, lane, cap, maximum, sum);
    });
  }
  join_lanes(maximum, sum);
  if constexpr (kEach > kWarp) {
    __shared__ float maxima[kEach / kWarp], sums[kEach / kWarp];
    if (lane % kWarp == 0) maxima[lane / kWarp] = maximum, sums[lane / kWarp] = sum;
    __syncthreads();
    const bool filled = lane < kEach / kWarp;
    maximum = filled ? maxima[lane] : kMinusInfinity;
    sum = filled ? sums[lane] : 0.0F;
    if (lane < kWarp) join_lanes(maximum, sum);
  }
  if (lane != 0) return;
  const std::int64_t label = labels[row] - vocab_first;
  const bool hit = counts && label >= 0 && label < width;
  float target = hit ? capped(to_float(logits[row * width + label]), cap) : 0.0F;
  float* const out = statistics + row * kStatistics;
  if (accumulate) {
    const float whole = fmaxf(out[0], maximum);
    const float base = base_of(whole);
    sum = out[1] * exponential(out[0] - base) + sum * exponential(maximum - base);
    target += out[2];
    maximum = whole;
  }
  out[0] = maximum;
  out[1] = sum;
  out[2] = target;
}

// Napkin: 16 bytes and a logarithm in double precision per row: negligible beside its logits.
__global__ void loss_partials(const float* statistics, const std::int32_t* labels,
                              std::int64_t rows, double* partials) {
  __shared__ double room[kWarp];
  const std::int64_t row = global_thread();
  double loss = 0;
  if (row < rows && labels[row] >= 0) {
    const float* s = statistics + row * kStatistics;
    loss = static_cast<double>(s[0]) + log(static_cast<double>(s[1])) - static_cast<double>(s[2]);
  }
  loss = block_sum(loss, room);
  if (threadIdx.x == 0) partials[blockIdx.x] = loss;
}

constexpr int kPacksEach = 4;  // packs per thread of the gradient

// Napkin: sizeof(L) + sizeof(D) bytes and one exponential per logit; bound by memory.
template <class L, class D>
__global__ void loss_gradient(const L* logits, const std::int32_t* labels, const float* statistics,
                              const float* scale, D* dlogits, std::int64_t vocab_first,
                              std::int64_t width, float cap, unsigned pieces, bool packed,
                              bool accumulate) {
  constexpr int N = kCommonPack<L, D>;
  const std::int64_t row = blockIdx.x / pieces;
  const std::int64_t begin =
      static_cast<std::int64_t>(blockIdx.x % pieces) * (kThreads * N * kPacksEach);
  const bool counts = labels[row] >= 0;
  const std::int64_t label = counts ? labels[row] - vocab_first : -1;
  const float maximum = statistics[row * kStatistics];
  const float factor = counts ? scale[0] / statistics[row * kStatistics + 1] : 0.0F;
  const auto at = [begin](int pack) {
    return begin + (pack * kThreads + static_cast<int>(threadIdx.x)) * N;
  };
  with_whole(packed, [&](auto whole) {
    float values[kPacksEach][N];
#pragma unroll
    for (int j = 0; j < kPacksEach; ++j) {
      if (!counts || at(j) >= width) continue;
      load_values(whole, logits + row * width + at(j), width - at(j), values[j]);
    }
#pragma unroll
    for (int j = 0; j < kPacksEach; ++j) {
      if (at(j) >= width) return;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float logit = capped(values[j][i], cap);
        const float part = cap > 0 ? logit / cap : 0.0F;
        values[j][i] = counts ? exponential(logit - maximum) * factor : 0.0F;
        if (at(j) + i == label) values[j][i] -= scale[0];
        if (counts) values[j][i] *= 1 - part * part;
      }
      store_values(whole, dlogits + row * width + at(j), width - at(j), values[j], accumulate);
    }
  });
}

}  // namespace

void execute(const LossStatistics& op, const Frame& frame) {
  const View logits = frame.view(op, op.logits);
  const View labels = frame.view(op, op.labels);
  const View statistics = frame.view(op, op.statistics);
  FPDT_ASSERT(logits.elements >= op.rows * op.vocab_count && labels.elements >= op.rows);
  FPDT_ASSERT(labels.dtype == Dtype::i32 && statistics.dtype == Dtype::f32);
  FPDT_ASSERT(statistics.elements >= op.rows * kStatistics);
  const bool narrow = op.vocab_count <= 2048;
  with_float_type(logits.dtype, [&](auto type) {
    using T = decltype(type);
    launch(narrow ? row_statistics<T, kWarp> : row_statistics<T, kThreads>,
           grid_of(narrow ? div_ceil(op.rows, kThreads / kWarp) : op.rows), kThreads, 0,
           frame.stream, elements<const T>(logits), elements<const std::int32_t>(labels),
           elements<float>(statistics), op.rows, op.vocab_first, op.vocab_count,
           static_cast<float>(op.cap), packs(logits, op.vocab_count), accumulates(statistics));
  });
}

void execute(const LossSum& op, const Frame& frame) {
  const View statistics = frame.view(op, op.statistics);
  const View labels = frame.view(op, op.labels);
  const View scale = frame.view(op, op.scale);
  FPDT_ASSERT(labels.dtype == Dtype::i32 && labels.elements >= op.rows);
  FPDT_ASSERT(statistics.dtype == Dtype::f32 && statistics.elements >= op.rows * kStatistics);
  FPDT_ASSERT(scale.dtype == Dtype::f32);
  const std::int64_t blocks = div_ceil(op.rows, kThreads);
  auto* partials = frame.partial<double>(blocks);
  launch(loss_partials, grid_of(blocks), kThreads, 0, frame.stream,
         elements<const float>(statistics), elements<const std::int32_t>(labels), op.rows,
         partials);
  add_partials(partials, blocks, elements<const float>(scale), frame.view(op, op.loss),
               frame.stream);
}

void execute(const LossGradient& op, const Frame& frame) {
  const View logits = frame.view(op, op.logits);
  const View labels = frame.view(op, op.labels);
  const View statistics = frame.view(op, op.statistics);
  const View scale = frame.view(op, op.scale);
  const View dlogits = frame.view(op, op.dlogits);
  const std::int64_t count = op.rows * op.vocab_count;
  FPDT_ASSERT(logits.elements >= count && dlogits.elements >= count);
  FPDT_ASSERT(labels.dtype == Dtype::i32 && labels.elements >= op.rows);
  FPDT_ASSERT(statistics.dtype == Dtype::f32 && statistics.elements >= op.rows * kStatistics);
  FPDT_ASSERT(scale.dtype == Dtype::f32);
  const bool packed = packs(logits, op.vocab_count) && packs(dlogits, op.vocab_count);
  with_float_type(logits.dtype, [&](auto of_logits) {
    with_float_type(dlogits.dtype, [&](auto of_dlogits) {
      using L = decltype(of_logits);
      using D = decltype(of_dlogits);
      const std::int64_t pieces =
          div_ceil(op.vocab_count, kThreads * kCommonPack<L, D> * kPacksEach);
      launch(loss_gradient<L, D>, grid_of(op.rows * pieces), kThreads, 0, frame.stream,
             elements<const L>(logits), elements<const std::int32_t>(labels),
             elements<const float>(statistics), elements<const float>(scale), elements<D>(dlogits),
             op.vocab_first, op.vocab_count, static_cast<float>(op.cap),
             static_cast<unsigned>(pieces), packed, accumulates(dlogits));
    });
  });
}

}  // namespace fpdt::cuda
