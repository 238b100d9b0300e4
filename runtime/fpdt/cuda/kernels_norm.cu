// RMS norm (Zhang and Sennrich, arXiv 1910.07467) and layer norm (Ba et al., arXiv 1607.06450).
//
// With r = 1 / sqrt(mean((x - c)^2) + epsilon), c the row's mean (0 for RMS), and n = (x - c) r:
//   y = n w + b,   dx = r (g - [mean(g)] - n mean(g n)) with g = dy w ([] for layer norm only),
//   dw = sum over rows of dy n,   db = sum over rows of dy.
//
// A block takes a row. Its threads keep the row in registers between the passes, so memory is read
// once. A thread has the same columns in every row. The rows may be columns of wider ones.
#include <array>
#include <numeric>
#include <string>

#include "fpdt/base/error.h"
#include "fpdt/cuda/kernels.h"
#include "fpdt/cuda/rows.h"

namespace fpdt::cuda {
namespace {

// Elements of a row that one thread holds, and the most threads of a block.
constexpr int kHeld = 16;
constexpr int kThreadsMost = 1024;
constexpr std::int64_t kWidest = kHeld * kThreadsMost;

struct Shape {
  std::int64_t rows;
  int width;
  bool layer;
  float epsilon;
  std::int64_t stride, first;

  // The first element of a row.
  __device__ __forceinline__ std::int64_t row(std::int64_t i) const { return i * stride + first; }
};

// Calls f(first held element, column) for each load of N elements that this thread holds.
template <int N, class F>
__device__ __forceinline__ void each_load(int width, F&& f) {
#pragma unroll
  for (int i = 0; i < kHeld; i += N) {
    const int column = static_cast<int>(i * blockDim.x + threadIdx.x * N);
    if (column < width) f(i, column);
  }
}

// The elements of a row that this thread holds; 0 past the end of the row.
template <class T, int N>
__device__ __forceinline__ void load_row(const Source<T>& source, std::int64_t row, const Shape& s,
                                         float (&held)[kHeld]) {
#pragma unroll
  for (int i = 0; i < kHeld; ++i) held[i] = 0;
  each_load<N>(s.width, [&](int i, int column) {
    float values[N];
    source.template load<N>(s.row(row) + column, values);
#pragma unroll
    for (int j = 0; j < N; ++j) held[i + j] = values[j];
  });
}

// The mean c that is subtracted.
__device__ __forceinline__ float center(const float (&x)[kHeld], const Shape& s, float* room) {
  if (!s.layer) return 0;
  float sum[1] = {};
#pragma unroll
  for (int i = 0; i < kHeld; ++i) sum[0] += x[i];
  block_sums(sum, room);
  return sum[0] / static_cast<float>(s.width);
}

// bf16: reads 2 and writes 2 bytes per element. Takes about 12 instructions, while an H100 could
// run 34 in the time of those 4 bytes: bound by memory. Weights come from the caches.
template <class T, int N>
__global__ void __launch_bounds__(kThreadsMost)
    norm(Source<T> x, Source<Any> weight, Source<Any> bias, Sink<T> y, Shape s) {
  __shared__ float rooms[2][kWarp];
  int turn = 0;
  for (std::int64_t row = blockIdx.x; row < s.rows; row += gridDim.x) {
    float held[kHeld];
    load_row<T, N>(x, row, s, held);
    const float mean = center(held, s, rooms[turn]);
    if (s.layer) turn ^= 1;
    float squares[1] = {};
    each_load<N>(s.width, [&](int i, int) {
#pragma unroll
      for (int j = 0; j < N; ++j) squares[0] += (held[i + j] - mean) * (held[i + j] - mean);
    });
    block_sums(squares, rooms[turn]);
    turn ^= 1;
    const float scale = 1.0F / sqrtf(squares[0] / static_cast<float>(s.width) + s.epsilon);
    each_load<N>(s.width, [&](int i, int column) {
      float w[N], out[N];
      weight.template load<N>(column, w);
#pragma unroll
      for (int j = 0; j < N; ++j) out[j] = (held[i + j] - mean) * scale * w[j];
      if (bias.data != nullptr) {
        bias.template load<N>(column, w);
#pragma unroll
        for (int j = 0; j < N; ++j) out[j] += w[j];
      }
      y.store(s.row(row) + column, out);
    });
  }
}

// ---- Backward ----

// Sums of this thread's columns over the rows of a block: four columns at a time, in shared memory
// beside those of the other threads, which never read them.
struct ColumnSums {
  float* own;  // this thread's first four; null: no sums

  __device__ __forceinline__ float* four(int i) const { return own + i * blockDim.x; }
  __device__ __forceinline__ void clear() const {
    if (own == nullptr) return;
    const float zeros[4] = {};
    for (int i = 0; i < kHeld; i += 4) store_pack<4>(four(i), zeros);
  }
  // Adds term(i) to the sum of held element i.
  template <class Term>
  __device__ __forceinline__ void add(Term&& term) const {
    if (own == nullptr) return;
#pragma unroll
    for (int i = 0; i < kHeld; i += 4) {
      float sums[4];
      load_pack<4>(four(i), sums);
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[j] += term(i + j);
      store_pack<4>(four(i), sums);
    }
  }
  // Writes the sums to row blockIdx.x of [blocks, width].
  template <int N>
  __device__ __forceinline__ void write(int width, float* partials) const {
    if (own == nullptr) return;
    partials += blockIdx.x * std::int64_t{width};
    each_load<N>(width, [&](int i, int column) {
#pragma unroll
      for (int j = 0; j < N; ++j) partials[column + j] = four((i + j) / 4 * 4)[(i + j) % 4];
    });
  }
};

template <class T>
struct Backward {
  Source<T> x, dy, addend;
  Source<Any> weight;
  Sink<T> dx;
  // One row per block, [blocks, width]; null: not summed.
  float *dweight, *dbias;
  std::int64_t rows_each;  // rows per block
};

// Statistics of a row: what dx subtracts, with its center and scale.
struct Statistics {
  float mean, scale, mean_g, mean_g_n;
};

template <class T, int N>
__device__ __forceinline__ Statistics row_statistics(const Backward<T>& b, const Shape& s,
                                                     const float (&x)[kHeld],
                                                     const float (&dy)[kHeld],
                                                     float (&rooms)[2][3 * kWarp], int& turn) {
  Statistics result{};
  result.mean = center(x, s, rooms[turn]);
  if (s.layer) turn ^= 1;
  float sums[3] = {};  // (x - c)^2, g, g (x - c)
  each_load<N>(s.width, [&](int i, int column) {
    float w[N];
    b.weight.template load<N>(column, w);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float centered = x[i + j] - result.mean;
      const float g = dy[i + j] * w[j];
      sums[0] += centered * centered;
      sums[1] += g;
      sums[2] += g * centered;
    }
  });
  block_sums(sums, rooms[turn]);
  turn ^= 1;
  const auto count = static_cast<float>(s.width);
  result.scale = 1.0F / sqrtf(sums[0] / count + s.epsilon);
  if (s.layer) result.mean_g = sums[1] / count;
  result.mean_g_n = sums[2] * result.scale / count;
  return result;
}

// bf16: reads x, dy and addend and writes dx, 8 bytes per element. Takes about 40 instructions,
// while an H100 could run 68 in that time: bound by memory. The sums move 16 bytes per element
// through shared memory, which passes 128 per cycle and multiprocessor: a third of the memory time.
template <class T, int N>
__global__ void __launch_bounds__(kThreadsMost) norm_backward(Backward<T> b, Shape s) {
  __shared__ float rooms[2][3 * kWarp];
  static_assert(sizeof(rooms) <= kStaticShared);
  int turn = 0;
  auto* shared = dynamic_shared<float>() + 4 * threadIdx.x;
  const ColumnSums dweight{b.dweight == nullptr ? nullptr : shared};
  const ColumnSums dbias{
      b.dbias == nullptr ? nullptr : shared + (b.dweight == nullptr ? 0 : kHeld * blockDim.x)};
  dweight.clear();
  dbias.clear();
  const std::int64_t end = min(s.rows, (blockIdx.x + std::int64_t{1}) * b.rows_each);
  for (std::int64_t row = blockIdx.x * b.rows_each; row < end; ++row) {
    float x[kHeld], dy[kHeld];
    load_row<T, N>(b.x, row, s, x);
    load_row<T, N>(b.dy, row, s, dy);
    const Statistics r = row_statistics<T, N>(b, s, x, dy, rooms, turn);
    dweight.add([&](int i) { return dy[i] * ((x[i] - r.mean) * r.scale); });
    dbias.add([&](int i) { return dy[i]; });
    each_load<N>(s.width, [&](int i, int column) {
      float w[N], out[N];
      b.weight.template load<N>(column, w);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float normal = (x[i + j] - r.mean) * r.scale;
        out[j] = r.scale * (dy[i + j] * w[j] - r.mean_g - normal * r.mean_g_n);
      }
      if (b.addend.data != nullptr) {
        b.addend.template load<N>(s.row(row) + column, w);
#pragma unroll
        for (int j = 0; j < N; ++j) out[j] += w[j];
      }
      b.dx.store(s.row(row) + column, out);
    });
  }
  dweight.write<N>(s.width, b.dweight);
  dbias.write<N>(s.width, b.dbias);
}

// ---- Sums over blocks ----

constexpr int kSlices = 16;

// 32 columns per block. Slice i of its threads adds the i-th part of the partials in ascending
// order; then the slices are added in order. Reads 4 bytes per partial, mostly from L2.
__global__ void add_columns(const float* partials, std::int64_t count, std::int64_t stride,
                            std::int64_t width, float* target, bool accumulate) {
  __shared__ float room[kSlices][kWarp];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  const std::int64_t end = count * (threadIdx.y + 1) / kSlices;
  float sum = 0;
  if (column < width) {
#pragma unroll 8
    for (std::int64_t i = count * threadIdx.y / kSlices; i < end; ++i) {
      sum += partials[i * stride + column];
    }
  }
  room[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) return;
#pragma unroll
  for (int slice = 1; slice < kSlices; ++slice) sum += room[slice][threadIdx.x];
  put(target + column, sum, accumulate);
}

// The number of norm_backward's blocks when it sums. Their partial sums of both gradients fill the
// scratch memory: 2^21 columns, or 2^17 threads of 16 columns each, which 128 multiprocessors with
// 1024 threads each run at once. Fewer blocks if a block would have less than four rows.
std::int64_t summing_blocks(std::int64_t rows, std::int64_t width) {
  const std::int64_t room = kScratchBytes / (2 * static_cast<std::int64_t>(sizeof(float)) * width);
  return std::min({std::int64_t{1024}, room, div_ceil(rows, 4)});
}

unsigned threads_of(std::int64_t width) {
  return static_cast<unsigned>(round_up(div_ceil(width, kHeld), kWarp));
}

template <class Op>
Shape shape_of(const Op& op, NormKind kind, std::int64_t stride, std::int64_t first) {
  if (op.width > kWidest) {
    throw InputError("norms on a GPU take rows of up to " + std::to_string(kWidest) +
                     " elements, not of " + std::to_string(op.width));
  }
  return {op.rows, static_cast<int>(op.width), kind == NormKind::layer,
          static_cast<float>(op.epsilon), stride, first};
}
template <class Op>
Shape shape_of_rows(const Op& op) {
  return shape_of(op, op.kind, op.width, 0);
}
template <class Op>
Shape shape_of_columns(const Op& op) {
  return shape_of(op, NormKind::rms, op.stride, op.column_first);
}

// The greatest common divisor of what rows begin at and end at: loads of so many elements fit.
std::int64_t divisor_of(const Shape& s) {
  return std::gcd(std::gcd(std::int64_t{s.width}, s.stride), s.first);
}

// y = norm(x) * weight + bias.
void launch_norm(const Shape& shape, const View& x, const View& weight, const View& bias,
                 const View& y, Stream stream) {
  const std::int64_t count = mul(shape.rows, shape.stride);
  FPDT_ASSERT(x.elements >= count && y.elements >= count && weight.elements >= shape.width);
  with_instance(aligned({weight, bias}), {x, y}, divisor_of(shape), [&](auto instance) {
    using T = typename decltype(instance)::Type;
    constexpr int N = decltype(instance)::kElements;
    launch(norm<T, N>, grid_of(shape.rows, 1), threads_of(shape.width), 0, stream, source<T>(x),
           source<Any>(weight), source<Any>(bias), sink<T>(y), shape);
  });
}

struct BackwardViews {
  View x, weight, dy, addend, dx, dweight, dbias;
};

void launch_backward(const Shape& shape, const BackwardViews& v, const Frame& frame) {
  const std::int64_t count = mul(shape.rows, shape.stride), width = shape.width;
  FPDT_ASSERT(v.x.elements >= count && v.dy.elements >= count && v.dx.elements >= count);
  const std::array sums{v.dweight, v.dbias};
  const auto summed = std::count_if(sums.begin(), sums.end(), present);
  const std::int64_t most =
      summed > 0 ? summing_blocks(shape.rows, width) : std::int64_t{grid_of(shape.rows, 1)};
  const std::int64_t each = div_ceil(shape.rows, most);
  const std::int64_t blocks = div_ceil(shape.rows, each);
  float* partials[2] = {};
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int64_t bytes = blocks * width * static_cast<std::int64_t>(sizeof(float));
    if (present(sums[i])) partials[i] = frame.partial<float>(blocks * width, i == 0 ? 0 : bytes);
  }
  with_instance(
      aligned({v.weight}), {v.x, v.dy, v.addend, v.dx}, divisor_of(shape), [&](auto instance) {
        using T = typename decltype(instance)::Type;
        constexpr int N = decltype(instance)::kElements;
        const unsigned threads = threads_of(width);
        const Backward<T> backward{source<T>(v.x),      source<T>(v.dy), source<T>(v.addend),
                                   source<Any>(v.weight), sink<T>(v.dx),   partials[0],
                                   partials[1],         each};
        launch(norm_backward<T, N>, static_cast<unsigned>(blocks), threads,
               static_cast<std::size_t>(summed) * threads * kHeld * sizeof(float), frame.stream,
               backward, shape);
      });
  for (std::size_t i = 0; i < 2; ++i) {
    if (!present(sums[i])) continue;
    add_column_partials(partials[i], blocks, width, width, sums[i], frame.stream);
  }
}

}  // namespace

void add_column_partials(const float* partials, std::int64_t count, std::int64_t stride,
                         std::int64_t width, const View& target, Stream stream) {
  FPDT_ASSERT(target.dtype == Dtype::f32 && target.elements >= width);
  launch(add_columns, grid_of(width, kWarp), dim3(kWarp, kSlices), 0, stream, partials, count,
         stride, width, elements<float>(target), accumulates(target));
}

void execute(const Norm& op, const Frame& frame) {
  launch_norm(shape_of_rows(op), frame.view(op, op.x), frame.view(op, op.weight),
              frame.view(op, op.bias), frame.view(op, op.y), frame.stream);
}

void execute(const NormBackward& op, const Frame& frame) {
  launch_backward(shape_of_rows(op),
                  {frame.view(op, op.x), frame.view(op, op.weight), frame.view(op, op.dy),
                   frame.view(op, op.addend), frame.view(op, op.dx), frame.view(op, op.dweight),
                   frame.view(op, op.dbias)},
                  frame);
}

void execute(const NormColumns& op, const Frame& frame) {
  const View values = replacing(frame.view(op, op.values));
  launch_norm(shape_of_columns(op), values, frame.view(op, op.weight), {}, values, frame.stream);
}

void execute(const NormColumnsBackward& op, const Frame& frame) {
  const View gradient = replacing(frame.view(op, op.gradient));
  launch_backward(shape_of_columns(op),
                  {frame.view(op, op.x),
                   frame.view(op, op.weight),
                   gradient,
                   {},
                   gradient,
                   frame.view(op, op.dweight),
                   {}},
                  frame);
}

}  // namespace fpdt::cuda
