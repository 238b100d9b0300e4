// Products of experts: each pair of a row and an expert with the matrix of its expert, and the
// gradients of the matrices.
//
// The ends of the experts' pairs lie on the device, so a grid has as many blocks as they can need
// at most, and a block finds out what it computes. A block computes one tile of a product, over its
// whole depth in ascending order. So every sum has one order.
//
// Products of bf16 use the tensor cores; others, and mixtures, use the arithmetic of f32.
#include <initializer_list>
#include <limits>
#include <type_traits>

#include "fpdt/base/math.h"
#include "fpdt/cuda/kernels.h"
#include "fpdt/cuda/kernels_attention.h"
#include "fpdt/cuda/packs.h"
#include "fpdt/cuda/routes.h"
#include "fpdt/cuda/rows.h"

namespace fpdt::cuda {
namespace {

// The op as kernels see it: out = a b, with a product for each expert. GroupedGradient has dy for a
// and x for b.
struct Grouped {
  Routes routes;
  Source<Any> a, b, bias;  // bias: absent, or a row an expert
  Sink<Any> out;
  std::int64_t n, k;
  bool transpose_b;
  int first, count;  // the experts whose matrices there are
};

// A tile of a product: offsets of its first elements, and its extent.
struct Tile {
  std::int64_t a = 0, b = 0, bias = 0, out = 0;
  int rows = 0, columns = 0, depth = 0;
};

__device__ __forceinline__ int at_most(int most, std::int64_t count) {
  return count < most ? static_cast<int>(count) : most;
}

// The expert that a slot for the rows of a tile belongs to. Expert e with pairs [begin, end) has
// slots from begin / kSize + e on. There are end / kSize - begin / kSize + 1 of them, at least as
// many as it has tiles, and pairs / kSize + experts in all.
template <int kSize>
__device__ __forceinline__ int expert_of_slot(const Routes& routes, std::int64_t slot) {
  int before = 0;  // experts whose successors begin here or earlier
  for (int e = lane(); e + 1 < routes.experts; e += kWarp) {
    before += routes.ends[e] / kSize + e + 1 <= slot ? 1 : 0;
  }
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    before += __shfl_xor_sync(kAllLanes, before, step);
  }
  return before;
}

// The block's tile of GroupedMatmul; without rows if there is none. Blocks of the same rows are
// neighbours: they run together, and read these rows once from memory.
template <int kSize>
__device__ __forceinline__ Tile tile_of_matmul(const Grouped& g) {
  const std::int64_t across = (g.n + kSize - 1) / kSize;
  std::int64_t slot = blockIdx.x / across;
  const std::int64_t column = blockIdx.x % across * kSize;
  if (g.count < g.routes.experts) {
    // The grid has slots for all pairs, of which the slice may have few.
    const int last = g.first + g.count - 1;
    slot += g.routes.begin(g.first) / kSize + g.first;
    if (slot > g.routes.ends[last] / kSize + last) return {};
  }
  const int expert = expert_of_slot<kSize>(g.routes, slot);
  const std::int64_t begin = g.routes.begin(expert);
  const std::int64_t first = begin + (slot - begin / kSize - expert) * kSize;
  const std::int64_t matrix = (expert - g.first) * g.n * g.k;
  const std::int64_t end = g.routes.ends[expert];
  return {first * g.k,
          matrix + (g.transpose_b ? column * g.k : column),
          expert * g.n + column,
          first * g.n + column,
          first < end ? at_most(kSize, end - first) : 0,
          at_most(kSize, g.n - column),
          static_cast<int>(g.k)};
}

// The block's tile of GroupedGradient. Its depth is the expert's pairs.
template <int kSize>
__device__ __forceinline__ Tile tile_of_gradient(const Grouped& g) {
  const std::int64_t down = (g.n + kSize - 1) / kSize, across = (g.k + kSize - 1) / kSize;
  const int matrix = static_cast<int>(blockIdx.x / (down * across)), expert = g.first + matrix;
  const std::int64_t row = blockIdx.x / across % down * kSize;
  const std::int64_t column = blockIdx.x % across * kSize;
  const std::int64_t begin = g.routes.begin(expert);
  return {begin * g.n + row,
          begin * g.k + column,
          0,
          (matrix * g.n + row) * g.k + column,
          at_most(kSize, g.n - row),
          at_most(kSize, g.k - column),
          static_cast<int>(g.routes.ends[expert] - begin)};
}

template <int kSize, bool gradient>
__device__ __forceinline__ Tile tile_of(const Grouped& g) {
  if constexpr (gradient) {
    return tile_of_gradient<kSize>(g);
  } else {
    return tile_of_matmul<kSize>(g);
  }
}

// Whether a block has nothing to write. It writes zeros to the sum of an expert without pairs.
__device__ __forceinline__ bool nothing(const Tile& tile, const Grouped& g) {
  return tile.rows == 0 || (tile.depth == 0 && g.out.accumulate);
}

// ---- bf16 ----

constexpr int kSide = 128;              // rows and columns of a tile
constexpr int kDepth = 32;              // of a stage
constexpr int kStages = 4;              // one is worked on while the others are filled
constexpr int kPart = 64;               // rows and columns of a warp
constexpr int kAcross = kSide / kPart;  // warps
constexpr int kThreads = kAcross * kAcross * kWarp;
constexpr int kFactorOfStage = kSide * kDepth;  // elements
constexpr int kBytes = kStages * 2 * kFactorOfStage * static_cast<int>(sizeof(bf16));

// A factor of a tile in global memory. `deep`: its memory rows are of one depth, else of one line.
template <bool deep>
struct Factor {
  const bf16* data;
  std::int64_t stride;
  int lines, depth;

  using Shared = SharedTile<deep ? kSide : kDepth>;
  static constexpr int kRows = deep ? kDepth : kSide;

  // Starts to load the terms [at, at + kDepth), with zeros where lines or depth end. If rows do not
  // begin at multiples of 16 bytes (not `whole`), elements are copied one by one, which takes
  // several times as long.
  template <bool whole>
  __device__ __forceinline__ void load(Shared to, int at) const {
    const HeadRows from = deep ? HeadRows{data + at * stride, stride, depth - at, lines}
                               : HeadRows{data + at, stride, lines, depth - at};
    if constexpr (whole) {
      to.template load<kRows, kThreads>(from, 0);
    } else {
#pragma unroll 1
      for (int i = static_cast<int>(threadIdx.x); i < kRows * Shared::kChunks; i += kThreads) {
        const int row = i / Shared::kChunks, column = i % Shared::kChunks * 8;
        const int count = row < from.rows ? from.size - column : 0;
        Pack<bf16, 8> values;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          values.values[j] = j < count ? from.data[row * stride + column + j] : bf16{0};
        }
        bf16* target = to.data + row * Shared::kChunks * 8 + 8 * (column / 8 ^ to.turn(row));
        *reinterpret_cast<Pack<bf16, 8>*>(target) = values;
      }
    }
  }

  // The registers of lines [line, +16) and terms [16k, +16) of a stage, as a first factor of
  // mma_bf16: its quarters are in order of columns, then rows.
  __device__ __forceinline__ static void rows_of(Shared from, unsigned (&to)[4], int line, int k) {
    if constexpr (deep) {
      from.template block<true>(to, 16 * k, line / 16);
      const unsigned lower = to[2];
      to[2] = to[1];
      to[1] = lower;
    } else {
      from.template block<false>(to, line, k);
    }
  }
  // As two second factors, of 8 lines each: {to[0], to[1]} and {to[2], to[3]}.
  __device__ __forceinline__ static void columns_of(Shared from, unsigned (&to)[4], int line,
                                                    int k) {
    if constexpr (deep) {
      from.template block<true>(to, 16 * k, line / 16);
    } else {
      from.template block<false>(to, line, k);
      const unsigned deeper = to[2];
      to[2] = to[1];
      to[1] = deeper;
    }
  }
};

using Sums = Products<kPart / 16, kPart / 8>;

// c += the products of a stage, for the warp's rows and columns.
template <class A, class B>
__device__ __forceinline__ void add_stage(Sums& c, typename A::Shared a, typename B::Shared b,
                                          int row, int column) {
#pragma unroll
  for (int k = 0; k < kDepth / 16; ++k) {
    unsigned of_a[kPart / 16][4];
#pragma unroll
    for (int i = 0; i < kPart / 16; ++i) A::rows_of(a, of_a[i], row + 16 * i, k);
#pragma unroll
    for (int j = 0; j < kPart / 16; ++j) {
      unsigned of_b[4];
      B::columns_of(b, of_b, column + 16 * j, k);
#pragma unroll
      for (int i = 0; i < kPart / 16; ++i) {
        mma_bf16(c[i][2 * j], of_a[i], of_b[0], of_b[1]);
        mma_bf16(c[i][2 * j + 1], of_a[i], of_b[2], of_b[3]);
      }
    }
  }
}

// Writes or adds the warp's sums to a matrix of `rows` rows and `columns` columns. `even`: pairs of
// its elements are aligned and complete.
template <class T>
__device__ __forceinline__ void deliver(const Sums& c, T* to, std::int64_t stride, int rows,
                                        int columns, bool even, bool accumulate) {
#pragma unroll
  for (int i = 0; i < kPart / 8; ++i) {
    const int row = row_first() + 8 * i;
    if (row >= rows) return;
    with_whole(even, [&](auto whole) {
#pragma unroll
      for (int j = 0; j < kPart / 8; ++j) {
        const int column = column_first() + 8 * j;
        if (column >= columns) return;
        const float pair[2] = {c[i / 2][j][i % 2 * 2], c[i / 2][j][i % 2 * 2 + 1]};
        store_values(whole, to + row * stride + column, columns - column, pair, accumulate);
      }
    });
  }
}

// Sums begin with the bias of their column: that of the warp's first is element `at`.
__device__ __forceinline__ void begin_with(const Source<Any>& bias, std::int64_t at, int columns,
                                           Sums& c) {
#pragma unroll
  for (int j = 0; j < kPart / 8; ++j) {
    const int column = column_first() + 8 * j;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float value[1] = {0};
      if (column + half < columns) bias.load<1>(at + column + half, value);
#pragma unroll
      for (int i = 0; i < kPart / 16; ++i) c[i][j][half] = c[i][j][2 + half] = value[0];
    }
  }
}

// Napkin: 2 n k operations per pair, here and in the gradient. For 16 terms, the tensor cores take
// 256 cycles of an A100 or 128 of an H100. Shared memory takes 192: the 4 warps read 4 KiB each,
// and 8 KiB arrive, at 128 bytes per cycle. So the tensor cores bound an A100, and shared memory an
// H100, whose wgmma this dialect does not have. A stage is fetched 3 stages ahead, 0.7 us or more.
// A tile makes 64 operations per byte of L2: 300 TFLOP/s read 4.7 TB/s. Expected: 190 TFLOP/s on an
// A100, 60 % of its peak, and 300 on an H100, 30 % of its peak. Measured on an H200: 271 forward,
// 311 to rows and 233 to weights (docs/results/gpu.md).
//
// The last tile of an expert has half of its rows on average, and takes nearly as long as a whole
// one. Experts of 512 pairs waste an eighth of the time.
template <bool gradient, bool deep_b, bool whole>
__global__ void __launch_bounds__(kThreads, 2) multiply_bf16(const Grouped g, bool even) {
  using A = Factor<gradient>;
  using B = Factor<deep_b>;
  const Tile tile = tile_of<kSide, gradient>(g);
  if (nothing(tile, g)) return;
  const A a{static_cast<const bf16*>(g.a.data) + tile.a, gradient ? g.n : g.k, tile.rows,
            tile.depth};
  const B b{static_cast<const bf16*>(g.b.data) + tile.b, gradient || !deep_b ? g.k : g.n,
            tile.columns, tile.depth};
  bf16* const room = dynamic_shared<bf16>();
  const auto a_of = [room](int step) {
    return typename A::Shared{room + step % kStages * (2 * kFactorOfStage)};
  };
  const auto b_of = [room](int step) {
    return typename B::Shared{room + step % kStages * (2 * kFactorOfStage) + kFactorOfStage};
  };
  const int steps = (tile.depth + kDepth - 1) / kDepth;
  const auto fetch = [&](int step) {
    if (step < steps) {
      a.template load<whole>(a_of(step), step * kDepth);
      b.template load<whole>(b_of(step), step * kDepth);
    }
    commit_copies();
  };
  const int row = warp() / kAcross * kPart;
  const int column = warp() % kAcross * kPart;
  const bool works = row < tile.rows && column < tile.columns;
  Sums c = {};
  if constexpr (!gradient) {
    if (g.bias.data != nullptr) begin_with(g.bias, tile.bias + column, tile.columns - column, c);
  }
  for (int step = 0; step < kStages - 1; ++step) fetch(step);
  for (int step = 0; step < steps; ++step) {
    await_copies<kStages - 2>();
    __syncthreads();
    fetch(step + kStages - 1);  // overwrites what all warps have read before the barrier
    if (works) add_stage<A, B>(c, a_of(step), b_of(step), row, column);
  }
  await_copies<0>();
  const std::int64_t stride = gradient ? g.k : g.n;
  const std::int64_t at = tile.out + row * stride + column;
  const int rows = tile.rows - row, columns = tile.columns - column;
  if (g.out.wide) {
    deliver(c, static_cast<float*>(g.out.data) + at, stride, rows, columns, even, g.out.accumulate);
  } else {
    deliver(c, static_cast<bf16*>(g.out.data) + at, stride, rows, columns, even, g.out.accumulate);
  }
}

// ---- Other types ----

constexpr int kPlainThreads = 256;
constexpr int kPlainSide = 64;
constexpr int kPlainDepth = 16;
constexpr int kEach = 4;                         // rows and columns of a thread
constexpr int kPlainPitch = kPlainSide + kEach;  // so that fewer writes meet in a bank
constexpr int kPlainBytes = 2 * kPlainDepth * kPlainPitch * static_cast<int>(sizeof(float));
static_assert(kPlainSide * kPlainSide == kPlainThreads * kEach * kEach);

// A factor of a tile in global memory. Either lines or terms are neighbours in memory.
struct PlainFactor {
  Source<Any> data;
  std::int64_t first, per_line, per_term;
  int lines, depth;

  // Loads the terms [at, at + kPlainDepth) as to[term][line], with zeros where lines or depth end.
  __device__ __forceinline__ void load(float* to, int at) const {
    for (int i = static_cast<int>(threadIdx.x); i < kPlainSide * kPlainDepth; i += kPlainThreads) {
      const int line = per_term == 1 ? i / kPlainDepth : i % kPlainSide;
      const int term = per_term == 1 ? i % kPlainDepth : i / kPlainSide;
      float value[1] = {0};
      if (line < lines && at + term < depth) {
        data.load<1>(first + line * per_line + (at + term) * per_term, value);
      }
      to[term * kPlainPitch + line] = value[0];
    }
  }
};

// Napkin: for a term, a thread reads 32 bytes from shared memory and makes 16 fused multiply-adds.
// Every 16 terms it waits for memory, which only the other blocks of the multiprocessor hide.
// Expected: 40 % of the peak of f32, 25 TFLOP/s on an H100. Not measured yet.
template <bool gradient>
__global__ void __launch_bounds__(kPlainThreads, 3) multiply_plain(const Grouped g) {
  const Tile tile = tile_of<kPlainSide, gradient>(g);
  if (nothing(tile, g)) return;
  const bool deep_b = gradient || !g.transpose_b;
  const PlainFactor a{g.a, tile.a, gradient ? 1 : g.k, gradient ? g.n : 1, tile.rows, tile.depth};
  const std::int64_t width = gradient || g.transpose_b ? g.k : g.n;
  const PlainFactor b{g.b,          tile.b,    deep_b ? 1 : width, deep_b ? width : 1,
                      tile.columns, tile.depth};
  float* const of_a = dynamic_shared<float>();
  float* const of_b = of_a + kPlainDepth * kPlainPitch;
  const int row = static_cast<int>(threadIdx.x) / (kPlainSide / kEach) * kEach;
  const int column = static_cast<int>(threadIdx.x) % (kPlainSide / kEach) * kEach;
  float sums[kEach][kEach] = {};
  for (int at = 0; at < tile.depth; at += kPlainDepth) {
    __syncthreads();
    a.load(of_a, at);
    b.load(of_b, at);
    __syncthreads();
#pragma unroll
    for (int term = 0; term < kPlainDepth; ++term) {
      float x[kEach], y[kEach];
      load_pack(of_a + term * kPlainPitch + row, x);
      load_pack(of_b + term * kPlainPitch + column, y);
#pragma unroll
      for (int i = 0; i < kEach * kEach; ++i)
        sums[i / kEach][i % kEach] += x[i / kEach] * y[i % kEach];
    }
  }
  const std::int64_t stride = gradient ? g.k : g.n;
#pragma unroll
  for (int i = 0; i < kEach * kEach; ++i) {
    const int y = row + i / kEach, x = column + i % kEach;
    float value[1] = {0};
    if constexpr (!gradient) {
      if (g.bias.data != nullptr && x < tile.columns) g.bias.load<1>(tile.bias + x, value);
    }
    value[0] += sums[i / kEach][i % kEach];
    if (y < tile.rows && x < tile.columns) g.out.store(tile.out + y * stride + x, value);
  }
}

// ---- Launches ----

// Launches the kernel for these operands. blocks(side): how many for tiles of that side.
template <bool gradient, class Blocks>
void multiply(const Grouped& g, std::initializer_list<View> factors, const View& out,
              const Frame& frame, Blocks&& blocks) {
  constexpr auto kMost = std::numeric_limits<std::int32_t>::max() / 2;
  FPDT_ASSERT(g.n <= kMost && g.k <= kMost);
  if (!all_are(Dtype::bf16, factors)) {
    return launch(multiply_plain<gradient>, grid_of(blocks(kPlainSide)), kPlainThreads, kPlainBytes,
                  frame.stream, g);
  }
  // A row of a has k elements, that of b has k if it is transposed and n if not. The
  // gradient has one of n and one of k.
  const bool whole =
      aligned(factors) && g.k % kPack<bf16> == 0 && (g.transpose_b || g.n % kPack<bf16> == 0);
  const bool even = aligned({out}) && (gradient ? g.k : g.n) % 2 == 0;
  const auto run = [&](auto deep_b) {
    constexpr bool kDeep = decltype(deep_b)::value;
    launch(whole ? multiply_bf16<gradient, kDeep, true> : multiply_bf16<gradient, kDeep, false>,
           grid_of(blocks(kSide)), kThreads, kBytes, frame.stream, g, even);
  };
  if constexpr (!gradient) {
    if (g.transpose_b) return run(std::false_type{});
  }
  run(std::true_type{});
}

}  // namespace

void execute(const GroupedMatmul& op, const Frame& frame) {
  const View a = frame.view(op, op.a), b = frame.view(op, op.b), out = frame.view(op, op.out);
  const View bias = frame.view(op, op.bias);
  const Routes routes = routes_of(op, frame.view(op, op.routes));
  FPDT_ASSERT(!present(bias) || bias.elements >= op.experts * op.n);
  const std::int64_t experts = op.slice.of(op.experts);
  FPDT_ASSERT(a.elements >= routes.pairs * op.k && b.elements >= experts * op.n * op.k);
  FPDT_ASSERT(out.elements >= routes.pairs * op.n);
  const Grouped g{routes,
                  source<Any>(a),
                  source<Any>(b),
                  source<Any>(bias),
                  sink<Any>(out),
                  op.n,
                  op.k,
                  op.transpose_b,
                  static_cast<int>(op.slice.first),
                  static_cast<int>(experts)};
  multiply<false>(g, {a, b}, out, frame, [&](std::int64_t side) {
    return mul(routes.pairs / side + experts, div_ceil(op.n, side));
  });
}

void execute(const GroupedGradient& op, const Frame& frame) {
  const View dy = frame.view(op, op.dy), x = frame.view(op, op.x), sum = frame.view(op, op.sum);
  const Routes routes = routes_of(op, frame.view(op, op.routes));
  FPDT_ASSERT(dy.elements >= routes.pairs * op.n && x.elements >= routes.pairs * op.k);
  const std::int64_t experts = op.slice.of(op.experts);
  FPDT_ASSERT(sum.dtype == Dtype::f32 && sum.elements >= experts * op.n * op.k);
  const Grouped g{routes,
                  source<Any>(dy),
                  source<Any>(x),
                  {},
                  sink<Any>(sum),
                  op.n,
                  op.k,
                  false,
                  static_cast<int>(op.slice.first),
                  static_cast<int>(experts)};
  multiply<true>(g, {dy, x}, sum, frame, [&](std::int64_t side) {
    return mul(experts, mul(div_ceil(op.n, side), div_ceil(op.k, side)));
  });
}

}  // namespace fpdt::cuda
