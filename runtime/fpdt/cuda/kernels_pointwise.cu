// Ops whose elements are independent: fills, copies with conversion, permutations, activations.
//
// All are bound by memory: an op takes its bytes over the bandwidth. A thread moves 16 bytes of an
// operand at a time, and 1280 to 2048 threads are resident per multiprocessor, so at least 32 KiB
// are in flight there. A latency of 1 us at 3.35 TB/s over 132 multiprocessors needs 25 KiB.
#include <bit>
#include <utility>

#include "fpdt/cuda/kernels.h"
#include "fpdt/cuda/routes.h"
#include "fpdt/cuda/rows.h"
#include "fpdt/runtime/bf16.h"

namespace fpdt::cuda {
namespace {

constexpr int kThreads = 256;

// ---- Fills and copies ----

// Each thread writes 16 bytes, or one element of 4 or 2 bytes.
template <class Word>
__global__ void fill(Word* target, std::int64_t count, Word value) {
  for (std::int64_t i = global_thread(); i < count; i += global_threads()) target[i] = value;
}

// Each thread reads and writes 16 bytes, or one element of 4 or 2 bytes.
template <class Word>
__global__ void copy(const Word* source, Word* target, std::int64_t count) {
  for (std::int64_t i = global_thread(); i < count; i += global_threads()) target[i] = source[i];
}

// Calls f(Word{}, words) with words of 16 bytes if the views consist of whole ones, else with words
// of one element.
template <class F>
void in_words(std::initializer_list<View> alike, F&& f) {
  const View& view = *alike.begin();
  if (aligned(alike) && view.bytes() % 16 == 0) return f(uint4{}, view.bytes() / 16);
  if (view.dtype == Dtype::bf16) return f(std::uint16_t{}, view.elements);
  f(std::uint32_t{}, view.elements);
}

// Reads one type and writes the other in accesses of N elements: 4 + 2 bytes per element. Also
// reads the target if it accumulates.
template <class S, class T, int N>
__global__ void convert(Source<S> source, Sink<T> target, std::int64_t loads) {
  for (std::int64_t i = global_thread(); i < loads; i += global_threads()) {
    float values[N];
    source.template load<N>(i * N, values);
    target.store(i * N, values);
  }
}

// ---- Rows ----

// Rows lie along y of a block, the loads of a row along x.
dim3 row_block(std::int64_t loads) {
  unsigned x = 1;
  while (x < kThreads && x < loads) x *= 2;
  return {x, kThreads / x, 1};
}

// Calls f(row, column) for each load of N in rows [begin, end) of `width`.
template <int N, class F>
__device__ __forceinline__ void each_in_rows(std::int64_t begin, std::int64_t end,
                                             std::int64_t width, F&& f) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  for (std::int64_t row = begin + static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
       row < end; row += stride) {
    for (std::int64_t column = threadIdx.x * N; column < width; column += blockDim.x * N) {
      f(row, column);
    }
  }
}

template <int N, class F>
__device__ __forceinline__ void each_in_rows(std::int64_t rows, std::int64_t width, F&& f) {
  each_in_rows<N>(0, rows, width, std::forward<F>(f));
}

// Reads and writes 2 or 4 bytes per element.
template <class S, class T, int N>
__global__ void permute(Source<S> source, Sink<T> target, std::int64_t outer, std::int64_t inner,
                        std::int64_t width) {
  each_in_rows<N>(outer * inner, width, [&](std::int64_t row, std::int64_t column) {
    const std::int64_t from = row % outer * inner + row / outer;
    float values[N];
    source.template load<N>(from * width + column, values);
    target.store(row * width + column, values);
  });
}

// bf16: reads 4 bytes and writes 2 per element, besides the bias, which stays in cache. `from` may
// be f32.
template <class S, class T, int N>
__global__ void add_rows(Source<S> from, Source<T> addend, Source<T> bias, bool has_bias,
                         Sink<T> out, std::int64_t rows, std::int64_t width) {
  each_in_rows<N>(rows, width, [&](std::int64_t row, std::int64_t column) {
    float sum[N], more[N];
    from.template load<N>(row * width + column, sum);
    addend.template load<N>(row * width + column, more);
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] += more[i];
    if (has_bias) {
      bias.template load<N>(column, more);
#pragma unroll
      for (int i = 0; i < N; ++i) sum[i] += more[i];
    }
    out.store(row * width + column, sum);
  });
}

// Reads and writes 8 bytes per element: of a router, a few per row.
__global__ void add_bias_to_rows(Source<Any> bias, Sink<Any> out, std::int64_t rows,
                                 std::int64_t width) {
  each_in_rows<1>(rows, width, [&](std::int64_t row, std::int64_t column) {
    float value[1];
    bias.load<1>(column, value);
    out.store(row * width + column, value);
  });
}

// ---- Activations ----

__device__ __forceinline__ float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }

// gelu(x) = x c(x), c the normal distribution function or its approximation
// (1 + tanh(u)) / 2 = sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3) (Hendrycks and Gimpel, arXiv
// 1606.08415).
constexpr float kTwiceRootTwoOverPi = 1.5957691216F;
constexpr float kCubic = 0.044715F;

template <ActivationKind kind>
__device__ __forceinline__ float gelu_weight(float x) {
  if constexpr (kind == ActivationKind::gelu_erf) return 0.5F * (1.0F + erff(x * 0.70710678119F));
  return sigmoid(kTwiceRootTwoOverPi * (x + kCubic * x * x * x));
}
template <ActivationKind kind>
__device__ __forceinline__ float gelu_slope(float x) {
  const float weight = gelu_weight<kind>(x);
  if constexpr (kind == ActivationKind::gelu_erf) {
    return weight + x * 0.39894228040F * expf(-0.5F * x * x);
  }
  const float slope = kTwiceRootTwoOverPi * (1.0F + 3.0F * kCubic * x * x);
  return weight + x * weight * (1.0F - weight) * slope;
}

template <ActivationKind kind>
constexpr bool kGated = inputs_of(kind) == 2;

constexpr auto kLimit = static_cast<float>(kClampLimit);
constexpr auto kRate = static_cast<float>(kClampRate);

// What a gated kind makes of a gate.
template <ActivationKind kind>
__device__ __forceinline__ float gated(float gate) {
  if constexpr (kind == ActivationKind::swiglu) return gate * sigmoid(gate);
  if constexpr (kind == ActivationKind::clamped_swiglu) {
    const float least = fminf(gate, kLimit);
    return least * sigmoid(kRate * least);
  }
  return gate * gelu_weight<ActivationKind::gelu_tanh>(gate);
}
template <ActivationKind kind>
__device__ __forceinline__ float gated_slope(float gate) {
  if constexpr (kind == ActivationKind::swiglu) {
    const float weight = sigmoid(gate);
    return weight + gate * weight * (1.0F - weight);
  }
  if constexpr (kind == ActivationKind::clamped_swiglu) {
    if (gate > kLimit) return 0.0F;
    const float weight = sigmoid(kRate * gate);
    return weight + kRate * gate * weight * (1.0F - weight);
  }
  return gelu_slope<ActivationKind::gelu_tanh>(gate);
}

// What multiplies that, and its slope.
template <ActivationKind kind>
__device__ __forceinline__ float factor_of(float up) {
  if constexpr (kind == ActivationKind::clamped_swiglu) {
    return fminf(fmaxf(up, -kLimit), kLimit) + 1.0F;
  }
  return up;
}
template <ActivationKind kind>
__device__ __forceinline__ float factor_slope(float up) {
  return kind == ActivationKind::clamped_swiglu && fabsf(up) > kLimit ? 0.0F : 1.0F;
}

// bf16: gated kinds read 4 and write 2 bytes per element of y, gelu 2 and 2. In the time of 6 bytes
// an H100 could run 50 instructions of a thread, and swiglu takes about 25.
template <ActivationKind kind, class T, int N>
__global__ void activation(Source<T> x, Sink<T> y, PairRun rows, std::int64_t width) {
  each_in_rows<N>(rows.begin(), rows.end(), width, [&](std::int64_t row, std::int64_t column) {
    float out[N];
    if constexpr (kGated<kind>) {
      float gate[N], up[N];
      const std::int64_t at = row * 2 * width + column;
      x.template load<N>(at, gate);
      x.template load<N>(at + width, up);
#pragma unroll
      for (int i = 0; i < N; ++i) out[i] = gated<kind>(gate[i]) * factor_of<kind>(up[i]);
    } else {
      x.template load<N>(row * width + column, out);
#pragma unroll
      for (int i = 0; i < N; ++i) out[i] *= gelu_weight<kind>(out[i]);
    }
    y.store(row * width + column, out);
  });
}

// bf16: gated kinds read 6 and write 4 bytes per element of dy, gelu 4 and 2.
template <ActivationKind kind, class T, int N>
__global__ void activation_backward(Source<T> x, Source<T> dy, Sink<T> dx, PairRun rows,
                                    std::int64_t width) {
  each_in_rows<N>(rows.begin(), rows.end(), width, [&](std::int64_t row, std::int64_t column) {
    float slope[N];
    dy.template load<N>(row * width + column, slope);
    if constexpr (kGated<kind>) {
      float gate[N], up[N];
      const std::int64_t at = row * 2 * width + column;
      x.template load<N>(at, gate);
      x.template load<N>(at + width, up);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float value = gated<kind>(gate[i]);
        gate[i] = slope[i] * factor_of<kind>(up[i]) * gated_slope<kind>(gate[i]);
        up[i] = slope[i] * value * factor_slope<kind>(up[i]);
      }
      dx.store(at, gate);
      dx.store(at + width, up);
    } else {
      float values[N];
      x.template load<N>(row * width + column, values);
#pragma unroll
      for (int i = 0; i < N; ++i) values[i] = slope[i] * gelu_slope<kind>(values[i]);
      dx.store(row * width + column, values);
    }
  });
}

// Calls f with the kind as a constant.
template <class F>
void with_kind(ActivationKind kind, F&& f) {
  switch (kind) {
    case ActivationKind::swiglu:
      return f(std::integral_constant<ActivationKind, ActivationKind::swiglu>{});
    case ActivationKind::gelu_tanh:
      return f(std::integral_constant<ActivationKind, ActivationKind::gelu_tanh>{});
    case ActivationKind::gelu_erf:
      return f(std::integral_constant<ActivationKind, ActivationKind::gelu_erf>{});
    case ActivationKind::geglu_tanh:
      return f(std::integral_constant<ActivationKind, ActivationKind::geglu_tanh>{});
    case ActivationKind::clamped_swiglu:
      return f(std::integral_constant<ActivationKind, ActivationKind::clamped_swiglu>{});
  }
}

}  // namespace

void execute(const Fill& op, const Frame& frame) {
  const View target = frame.view(op, op.target);
  FPDT_ASSERT(!accumulates(target));
  const auto value = static_cast<float>(op.value);
  auto bits = std::bit_cast<std::uint32_t>(value);
  if (target.dtype == Dtype::i32) bits = static_cast<std::uint32_t>(static_cast<int>(op.value));
  if (target.dtype == Dtype::bf16) bits = narrow(value) * 0x10001U;
  in_words({target}, [&](auto word, std::int64_t count) {
    using Word = decltype(word);
    if constexpr (std::is_same_v<Word, uint4>) {
      word = {bits, bits, bits, bits};
    } else {
      word = static_cast<Word>(bits);
    }
    launch(fill<Word>, grid_of(count, kThreads), kThreads, 0, frame.stream, elements<Word>(target),
           count, word);
  });
}

void execute(const Copy& op, const Frame& frame) {
  const View from = frame.view(op, op.source), to = frame.view(op, op.target);
  FPDT_ASSERT(from.elements == to.elements);
  if (from.dtype == to.dtype && !accumulates(to)) {
    return in_words({from, to}, [&](auto word, std::int64_t count) {
      using Word = decltype(word);
      launch(copy<Word>, grid_of(count, kThreads), kThreads, 0, frame.stream,
             elements<const Word>(from), elements<Word>(to), count);
    });
  }
  with_instances({from}, {to}, from.elements, [&](auto s, auto t) {
    using S = typename decltype(s)::Type;
    using T = typename decltype(t)::Type;
    constexpr int N = decltype(s)::kElements;
    launch(convert<S, T, N>, grid_of(from.elements / N, kThreads), kThreads, 0, frame.stream,
           source<S>(from), sink<T>(to), from.elements / N);
  });
}

void execute(const Permute& op, const Frame& frame) {
  const View from = frame.view(op, op.source), to = frame.view(op, op.target);
  const std::int64_t rows = mul(op.outer, op.inner);
  FPDT_ASSERT(from.elements >= mul(rows, op.width) && to.elements >= mul(rows, op.width));
  with_instances({from}, {to}, op.width, [&](auto s, auto t) {
    using S = typename decltype(s)::Type;
    using T = typename decltype(t)::Type;
    constexpr int N = decltype(s)::kElements;
    const dim3 block = row_block(op.width / N);
    launch(permute<S, T, N>, grid_of(rows, block.y), block, 0, frame.stream, source<S>(from),
           sink<T>(to), op.outer, op.inner, op.width);
  });
}

void execute(const Add& op, const Frame& frame) {
  const View from = frame.view(op, op.source), addend = frame.view(op, op.addend);
  const View bias = frame.view(op, op.bias), out = frame.view(op, op.out);
  for (const View& view : {from, addend, out}) {
    FPDT_ASSERT(view.elements >= mul(op.rows, op.width));
  }
  with_instances({from}, {addend, bias, out}, op.width, [&](auto s, auto t) {
    using S = typename decltype(s)::Type;
    using T = typename decltype(t)::Type;
    constexpr int N = decltype(t)::kElements;
    const dim3 block = row_block(op.width / N);
    launch(add_rows<S, T, N>, grid_of(op.rows, block.y), block, 0, frame.stream, source<S>(from),
           source<T>(addend), source<T>(bias), present(bias), sink<T>(out), op.rows, op.width);
  });
}

void add_bias(const View& bias, const View& out, std::int64_t rows, std::int64_t width,
              Stream stream) {
  FPDT_ASSERT(bias.elements >= width && out.elements >= mul(rows, width));
  Sink<Any> sum = sink<Any>(out);
  sum.accumulate = true;
  const dim3 block = row_block(width);
  launch(add_bias_to_rows, grid_of(rows, block.y), block, 0, stream, source<Any>(bias), sum, rows,
         width);
}

void execute(const Activation& op, const Frame& frame) {
  const View x = frame.view(op, op.x), y = frame.view(op, op.y);
  const std::int64_t rows = mul(op.rows, op.active);
  FPDT_ASSERT(x.elements >= mul(rows, inputs_of(op.kind) * op.width));
  FPDT_ASSERT(y.elements >= mul(rows, op.width));
  with_instance(true, {x, y}, op.width, [&](auto instance) {
    using T = typename decltype(instance)::Type;
    constexpr int N = decltype(instance)::kElements;
    with_kind(op.kind, [&](auto kind) {
      const dim3 block = row_block(op.width / N);
      launch(activation<decltype(kind)::value, T, N>, grid_of(rows, block.y), block, 0,
             frame.stream, source<T>(x), sink<T>(y), run_of(op, frame), op.width);
    });
  });
}

void execute(const ActivationBackward& op, const Frame& frame) {
  const View x = frame.view(op, op.x), dy = frame.view(op, op.dy), dx = frame.view(op, op.dx);
  const std::int64_t rows = mul(op.rows, op.active);
  const std::int64_t inputs = mul(rows, inputs_of(op.kind) * op.width);
  FPDT_ASSERT(x.elements >= inputs && dx.elements >= inputs && dy.elements >= mul(rows, op.width));
  with_instance(true, {x, dy, dx}, op.width, [&](auto instance) {
    using T = typename decltype(instance)::Type;
    constexpr int N = decltype(instance)::kElements;
    with_kind(op.kind, [&](auto kind) {
      const dim3 block = row_block(op.width / N);
      launch(activation_backward<decltype(kind)::value, T, N>, grid_of(rows, block.y), block, 0,
             frame.stream, source<T>(x), source<T>(dy), sink<T>(dx), run_of(op, frame), op.width);
    });
  });
}

}  // namespace fpdt::cuda
