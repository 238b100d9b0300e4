// Rows on their way to experts and back. A warp serves a row.
#include "fpdt/cuda/kernels.h"
#include "fpdt/cuda/packs.h"
#include "fpdt/cuda/routes.h"
#include "fpdt/cuda/rows.h"

namespace fpdt::cuda {
namespace {

constexpr int kThreads = 256;

// Blocks of a grid with a warp for each row.
unsigned warps_for(std::int64_t rows) { return grid_of(rows, kThreads / kWarp); }

// Packs of a row that a lane has in flight.
constexpr int kRound = 4;

// Warps of a block that adds rows.
constexpr int kDeep = 16;

// Napkin: reads and writes each row of a pair once; bound by memory. A warp has 2 KiB in flight, so
// 16 warps of a multiprocessor cover a latency of 1 us at 4.8 TB/s over 132 of them.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    dispatch(Source<T> x, Sink<T> y, Routes routes, PairRun run, std::int64_t width) {
  const std::int64_t pair = run.begin() + row_of_warp();
  if (pair >= run.end()) return;
  const std::int64_t from = routes.sources[pair] / routes.active * width;
  const std::int64_t to = pair * width;
  for (std::int64_t first = lane() * N; first < width; first += kRound * kWarp * N) {
    float values[kRound][N] = {};
#pragma unroll
    for (int i = 0; i < kRound; ++i) {
      const std::int64_t at = first + i * kWarp * N;
      if (at < width) x.template load<N>(from + at, values[i]);
    }
#pragma unroll
    for (int i = 0; i < kRound; ++i) {
      const std::int64_t at = first + i * kWarp * N;
      if (at < width) y.store(to + at, values[i]);
    }
  }
}

// Adds factor * from[at, ...) to a lane's round of packs. Sums past the row are not used.
template <int N, class T>
__device__ __forceinline__ void add_round(const Source<T>& from, std::int64_t at, std::int64_t left,
                                          float factor, float (&sums)[kRound][N]) {
  float values[kRound][N] = {};
#pragma unroll
  for (int i = 0; i < kRound; ++i) {
    if (i * kWarp * N < left) from.template load<N>(at + i * kWarp * N, values[i]);
  }
#pragma unroll
  for (int i = 0; i < kRound; ++i) {
#pragma unroll
    for (int j = 0; j < N; ++j) sums[i][j] += factor * values[i][j];
  }
}

// Napkin: reads the rows of all pairs, and writes a row for each `active` of them; bound by memory.
// With a slice of experts the sums are f32 and the pairs are not: S and T.
template <class S, class T, int N>
__global__ void __launch_bounds__(kThreads)
    combine(Source<S> x, const float* weights, Source<T> addend, Sink<T> y, Routes routes,
            PairRun run, std::int64_t rows, std::int64_t width) {
  const std::int64_t row = row_of_warp();
  if (row >= rows) return;
  const std::int64_t begin = run.begin(), end = run.end();
  for (std::int64_t first = lane() * N; first < width; first += kRound * kWarp * N) {
    const std::int64_t left = width - first;
    float sums[kRound][N] = {};
    for (int j = 0; j < routes.active; ++j) {
      const std::int64_t entry = row * routes.active + j, pair = routes.slots[entry];
      if (pair < begin || pair >= end) continue;
      const float weight = weights == nullptr ? 1.0F : weights[entry];
      add_round(x, pair * width + first, left, weight, sums);
    }
    if (addend.data != nullptr) add_round(addend, row * width + first, left, 1.0F, sums);
#pragma unroll
    for (int i = 0; i < kRound; ++i) {
      if (i * kWarp * N < left) y.store(row * width + first + i * kWarp * N, sums[i]);
    }
  }
}

// The expert of a pair, which all lanes get.
__device__ __forceinline__ int expert_of_pair(const Routes& routes, std::int64_t pair) {
  float before = 0;  // experts whose pairs end here or earlier: at most 1024
  for (int e = lane(); e < routes.experts; e += kWarp) before += routes.ends[e] <= pair ? 1 : 0;
  return static_cast<int>(warp_sum(before));
}

// A block adds the pairs of an expert in 32 packs of columns. Its warp y takes pairs y, y + kDeep,
// ... in ascending order. Then the warps are added in order.
//
// Napkin: reads each row of a pair once; bound by memory if enough is in flight, 3 MiB on an H200.
// 32 experts of 2880 columns are 384 blocks, of which 132 multiprocessors hold all; 16 warps of
// each have 4 loads of 512 bytes in flight: 12 MiB. An expert with all pairs has 384 KiB: 0.5 TB/s.
// One warp in place of a block reached 0.33 TB/s in steps of gpt-oss-20b on an H200.
template <class T, int N>
__global__ void __launch_bounds__(kWarp* kDeep)
    sum_pairs(Source<T> source, const float* weights, Sink<float> sum, Routes routes,
              int first_expert, std::int64_t width, std::int64_t across) {
  __shared__ float room[kDeep][kWarp * N];
  const std::int64_t block = blockIdx.x, matrix = block / across;
  const int expert = first_expert + static_cast<int>(matrix);
  const std::int64_t column = (block % across * kWarp + threadIdx.x) * N;
  const std::int64_t end = routes.ends[expert];
  float sums[N] = {};
  if (column < width) {
#pragma unroll 4
    for (std::int64_t pair = routes.begin(expert) + threadIdx.y; pair < end; pair += kDeep) {
      float values[N];
      source.template load<N>(pair * width + column, values);
      const float weight = weights == nullptr ? 1.0F : weights[routes.sources[pair]];
#pragma unroll
      for (int i = 0; i < N; ++i) sums[i] += weight * values[i];
    }
  }
#pragma unroll
  for (int i = 0; i < N; ++i) room[threadIdx.y][threadIdx.x * N + i] = sums[i];
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) return;
  for (int y = 1; y < kDeep; ++y) {
#pragma unroll
    for (int i = 0; i < N; ++i) sums[i] += room[y][threadIdx.x * N + i];
  }
  sum.store(matrix * width + column, sums);
}

// In place. Napkin: reads and writes two rows per pair; bound by memory.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    combine_gradient(Source<T> x, Source<T> dx, const float* weights, Sink<T> weighted_x,
                     Sink<T> weighted_dx, float* dweights, bool accumulate, Routes routes,
                     PairRun run, const float* terms, std::int64_t width) {
  const std::int64_t pair = row_of_warp();
  if (pair >= routes.pairs) return;
  const std::int64_t entry = routes.sources[pair];
  if (pair < run.begin() || pair >= run.end()) {
    if (lane() == 0 && !accumulate) dweights[entry] = 0;
    return;
  }
  const float weight = weights[entry];
  float dot = 0;
#pragma unroll 2
  for (std::int64_t at = lane() * N; at < width; at += kWarp * N) {
    float a[N], b[N];
    x.template load<N>(pair * width + at, a);
    dx.template load<N>(pair * width + at, b);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      dot += a[i] * b[i];
      a[i] *= weight;
      b[i] *= weight;
    }
    weighted_x.store(pair * width + at, a);
    weighted_dx.store(pair * width + at, b);
  }
  dot = warp_sum(dot);
  if (terms != nullptr) {
    dot += terms[entry / routes.active * routes.experts + expert_of_pair(routes, pair)];
  }
  if (lane() == 0) put(dweights + entry, dot, accumulate);
}

}  // namespace

void execute(const Dispatch& op, const Frame& frame) {
  const View x = frame.view(op, op.x), y = frame.view(op, op.y);
  const Routes routes = routes_of(op, frame.view(op, op.routes));
  FPDT_ASSERT(x.elements >= op.rows * op.width && y.elements >= routes.pairs * op.width);
  with_instance(true, {x, y}, op.width, [&](auto instance) {
    using T = typename decltype(instance)::Type;
    launch(dispatch<T, decltype(instance)::kElements>, warps_for(routes.pairs), kThreads, 0,
           frame.stream, source<T>(x), sink<T>(y), routes, run_of(routes, op.slice), op.width);
  });
}

void execute(const Combine& op, const Frame& frame) {
  const View x = frame.view(op, op.x), y = frame.view(op, op.y);
  const View weights = frame.view(op, op.weights);
  const View addend = frame.view(op, op.addend);
  const Routes routes = routes_of(op, frame.view(op, op.routes));
  FPDT_ASSERT(x.elements >= routes.pairs * op.width && y.elements >= op.rows * op.width);
  FPDT_ASSERT(!present(weights) || holds(weights, routes.pairs));
  FPDT_ASSERT(!present(addend) || addend.elements >= op.rows * op.width);
  with_instances({x}, {addend, y}, op.width, [&](auto from, auto to) {
    using S = typename decltype(from)::Type;
    using T = typename decltype(to)::Type;
    launch(combine<S, T, decltype(to)::kElements>, warps_for(op.rows), kThreads, 0, frame.stream,
           source<S>(x), elements<const float>(weights), source<T>(addend), sink<T>(y), routes,
           run_of(routes, op.slice), op.rows, op.width);
  });
}

void execute(const CombineBackward& op, const Frame& frame) {
  const View x = replacing(frame.view(op, op.x)), dx = replacing(frame.view(op, op.dx));
  const View weights = frame.view(op, op.weights), dweights = frame.view(op, op.dweights);
  const Routes routes = routes_of(op, frame.view(op, op.routes));
  for (const View& view : {x, dx}) FPDT_ASSERT(view.elements >= routes.pairs * op.width);
  const View terms = frame.view(op, op.terms);
  FPDT_ASSERT(holds(weights, routes.pairs) && holds(dweights, routes.pairs));
  FPDT_ASSERT(!present(terms) || holds(terms, op.rows * op.experts));
  with_instance(true, {x, dx}, op.width, [&](auto instance) {
    using T = typename decltype(instance)::Type;
    launch(combine_gradient<T, decltype(instance)::kElements>, warps_for(routes.pairs), kThreads, 0,
           frame.stream, source<T>(x), source<T>(dx), elements<const float>(weights),
           sink<T>(x), sink<T>(dx), elements<float>(dweights),
           accumulates(dweights), routes, run_of(routes, op.slice), elements<const float>(terms),
           op.width);
  });
}

void execute(const GroupedSum& op, const Frame& frame) {
  const View from = frame.view(op, op.source), sum = frame.view(op, op.sum);
  const View weights = frame.view(op, op.weights);
  const Routes routes = routes_of(op, frame.view(op, op.routes));
  const std::int64_t experts = op.slice.of(op.experts);
  FPDT_ASSERT(from.elements >= routes.pairs * op.width && holds(sum, experts * op.width));
  FPDT_ASSERT(!present(weights) || holds(weights, routes.pairs));
  with_instance(aligned({sum}), {from}, op.width, [&](auto instance) {
    using T = typename decltype(instance)::Type;
    constexpr int N = decltype(instance)::kElements;
    const std::int64_t across = (op.width + kWarp * N - 1) / (kWarp * N);
    launch(sum_pairs<T, N>, grid_of(experts * across), dim3(kWarp, kDeep), 0, frame.stream,
           source<T>(from), elements<const float>(weights), sink<float>(sum), routes,
           static_cast<int>(op.slice.first), op.width, across);
  });
}

}  // namespace fpdt::cuda
