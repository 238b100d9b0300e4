// Exact attention by tiles, forward: FlashAttention-2 (Dao, arXiv 2307.08691) on mma.sync.
//
// A block takes one head and 128 queries, which stay in shared memory. Each warp owns 32 queries
// (16 when heads are large, so that registers suffice). Blocks of 64 keys pass in ascending order.
// Each row keeps the maximum m of the scores, in units of log 2, the sum l of exp2(score - m) and
// the sum o of exp2(score - m) v. A tile that accumulates starts from the stored results, as m =
// lse, l = 1, o. A row that has seen no key has m = -infinity, l = 0, o = 0.
//
// The next keys are loaded while values are multiplied, and the values while keys are multiplied.
// One buffer each is enough, so two blocks fit on a multiprocessor of sm_80 at D = 128.
//
// Napkin: per head 4 q k D operations (half of them on the diagonal) for 2 D q + 4 D k q / 128
// bytes, mostly from the second-level cache. That is 128 operations per byte: bound by the tensor
// cores. Expected: about 60 % of FlashAttention-2 at first, and all of it with tuning: 200 TFLOP/s
// on an A100 and 370 on an H100 at D = 128. Measured on an H200 with 8192 rows: 312 forward and 199
// backward, where FlashAttention-2 reaches 345 forward with 32768 rows (docs/results/gpu.md).
#include <cmath>

#include "fpdt/cuda/kernels.h"
#include "fpdt/cuda/kernels_attention.h"

namespace fpdt::cuda {
namespace {

// `small`: for GPUs with less shared memory.
template <int kDim_, bool small>
struct Shape {
  static constexpr int kDim = kDim_;
  static constexpr int kTiles = kDim <= 128 ? 2 : 1;  // tiles of 16 queries per warp
  static constexpr int kThreads = kDim <= 128 ? 128 : 256;
  static constexpr int kQueries = kThreads / kWarp * kTiles * 16;
  static constexpr int kKeys = small ? 32 : 64;
  static constexpr int kSharedBytes =
      (kQueries + 2 * kKeys) * kDim * 2 + kQueries * static_cast<int>(sizeof(Span));
  static_assert(kSharedBytes <= (small ? kAttentionSharedLeast : kAttentionSharedMost));
};

template <class Out>
struct ForwardTile {
  TileInputs in;
  Out* o;
  float* lse;
  bool accumulate;

  __device__ __forceinline__ std::int64_t lse_at(int query, int head) const {
    return static_cast<std::int64_t>(query) * in.heads + head;
  }
};

// A thread's share of its warp's running softmax. [i][h] is row 16*i + lane/4 + 8*h. Its maximum is
// that of the whole row; its sums cover only the thread's own keys.
template <class S>
struct Running {
  float maximum[S::kTiles][2];
  float sum[S::kTiles][2];
  Products<S::kTiles, S::kDim / 8> o;
};

template <class S, class Out>
__device__ __forceinline__ void begin(const ForwardTile<Out>& tile, int head, int first,
                                      Running<S>& own) {
#pragma unroll
  for (int i = 0; i < S::kTiles; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int query = first + row_first() + 16 * i + 8 * h;
      const bool stored = tile.accumulate && query < tile.in.mask.q_rows;
      const std::int64_t at = tile.lse_at(query, head);
      const float lse = stored ? tile.lse[at] : kMinusInfinity;
      const bool seen = lse > kMinusInfinity;
      own.maximum[i][h] = lse * kLog2OfE;
      own.sum[i][h] = seen && lane() % 4 == 0 ? 1.0F : 0.0F;
#pragma unroll
      for (int j = 0; j < S::kDim / 8; ++j) {
        const int column = column_first() + 8 * j;
        float pair[2] = {0, 0};
        if (seen && column < tile.in.size) load_pack(tile.o + at * tile.in.size + column, pair);
        own.o[i][j][2 * h] = pair[0];
        own.o[i][j][2 * h + 1] = pair[1];
      }
    }
  }
}

// Turns scores into exp2(score - m) with new maxima m, and rescales the earlier sums.
template <class S>
__device__ __forceinline__ void absorb(Products<S::kTiles, S::kKeys / 8>& scores, float scale,
                                       Running<S>& own) {
#pragma unroll
  for (int i = 0; i < S::kTiles; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float largest = kMinusInfinity;
#pragma unroll
      for (int j = 0; j < S::kKeys / 8; ++j) {
        largest = fmaxf(largest, fmaxf(scores[i][j][2 * h], scores[i][j][2 * h + 1]));
      }
      // Four lanes share a row.
      largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
      const float maximum = fmaxf(own.maximum[i][h], largest * scale);
      const float base = maximum == kMinusInfinity ? 0.0F : maximum;
      const float fade = fast_exp2(own.maximum[i][h] - base);
      own.maximum[i][h] = maximum;
      float sum = 0;
#pragma unroll
      for (int j = 0; j < S::kKeys / 8; ++j) {
#pragma unroll
        for (int e = 2 * h; e < 2 * h + 2; ++e) {
          scores[i][j][e] = fast_exp2(fmaf(scores[i][j][e], scale, -base));
          sum += scores[i][j][e];
        }
      }
      own.sum[i][h] = own.sum[i][h] * fade + sum;
#pragma unroll
      for (int j = 0; j < S::kDim / 8; ++j) {
        own.o[i][j][2 * h] *= fade;
        own.o[i][j][2 * h + 1] *= fade;
      }
    }
  }
}

template <class S, class Out>
__device__ __forceinline__ void finish(const ForwardTile<Out>& tile, int head, int first,
                                       const Running<S>& own) {
#pragma unroll
  for (int i = 0; i < S::kTiles; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = own.sum[i][h];
      sum += __shfl_xor_sync(kAllLanes, sum, 1);
      sum += __shfl_xor_sync(kAllLanes, sum, 2);
      const int query = first + row_first() + 16 * i + 8 * h;
      if (query >= tile.in.mask.q_rows) continue;
      const std::int64_t at = tile.lse_at(query, head);
      const float part = sum > 0 ? 1 / sum : 0.0F;
#pragma unroll
      for (int j = 0; j < S::kDim / 8; ++j) {
        const int column = column_first() + 8 * j;
        const float pair[2] = {own.o[i][j][2 * h] * part, own.o[i][j][2 * h + 1] * part};
        if (column < tile.in.size) store_pack(tile.o + at * tile.in.size + column, pair);
      }
      if (lane() % 4 == 0) {
        tile.lse[at] = sum > 0 ? own.maximum[i][h] * kLogOf2 + logf(sum) : kMinusInfinity;
      }
    }
  }
}

template <class S, class Out>
__global__ void __launch_bounds__(S::kThreads) attend(const ForwardTile<Out> tile) {
  const TileInputs& in = tile.in;
  const Mask& mask = in.mask;
  // Blocks that see the most keys come first.
  const unsigned blocks = (mask.q_rows + S::kQueries - 1) / S::kQueries;
  const int first = static_cast<int>(blocks - 1 - blockIdx.x % blocks) * S::kQueries;
  const int head = static_cast<int>(blockIdx.x / blocks);
  const Span keys = mask.keys_of(first, S::kQueries);
  const Span common = mask.common(first, S::kQueries);
  if (keys.empty() && tile.accumulate) return;

  const SharedTile<S::kDim> q{dynamic_shared<bf16>()};
  const SharedTile<S::kDim> k{q.data + S::kQueries * S::kDim};
  const SharedTile<S::kDim> v{k.data + S::kKeys * S::kDim};
  auto* const seen = reinterpret_cast<Span*>(v.data + S::kKeys * S::kDim);  // [kQueries]
  const HeadRows k_rows = in.keys(head / in.group());
  const HeadRows v_rows = in.values(head / in.group());
  if (!keys.empty()) {
    q.template load<S::kQueries, S::kThreads>(in.query_rows(in.q, head), first);
    k.template load<S::kKeys, S::kThreads>(k_rows, keys.first);
    commit_copies();
    for (int i = static_cast<int>(threadIdx.x); i < S::kQueries; i += S::kThreads) {
      seen[i] = mask.seen(first + i);
    }
  }
  const int row = warp() * S::kTiles * 16;
  Running<S> own;
  begin<S>(tile, head, first + row, own);
  for (int at = keys.first; at < keys.end; at += S::kKeys) {
    await_copies<0>();  // wait for the keys
    __syncthreads();
    v.template load<S::kKeys, S::kThreads>(v_rows, at);
    commit_copies();
    Products<S::kTiles, S::kKeys / 8> scores = {};
    multiply_rows(scores, q, row, k);
    if (in.cap > 0) soften(scores, in.scale, in.cap);
    await_copies<0>();  // wait for the values
    __syncthreads();
    if (!common.holds(at, S::kKeys)) {
      hide<false>(scores, [&](int i) { return seen[row + row_first() + i].from(at); });
    }
    absorb<S>(scores, in.scale * kLog2OfE, own);
    if (at + S::kKeys < keys.end) {
      k.template load<S::kKeys, S::kThreads>(k_rows, at + S::kKeys);
      commit_copies();
    }
    multiply_add(own.o, scores, v, 0);
  }
  finish<S>(tile, head, first + row, own);
}

// Eight lanes share a row of a head. Each takes kCount elements at a time.
template <int kCount, class O, class G>
__global__ void delta_of_rows(std::int64_t rows, std::int64_t size, const O* o, const G* dout,
                              float* delta) {
  constexpr int kLanes = 8;
  const std::int64_t row = global_thread() / kLanes;
  const int part = static_cast<int>(threadIdx.x % kLanes);
  float sum = 0;
  if (row < rows) {
    for (std::int64_t at = part * kCount; at < size; at += kLanes * kCount) {
      float a[kCount];
      float b[kCount];
      load_pack(o + row * size + at, a);
      load_pack(dout + row * size + at, b);
#pragma unroll
      for (int i = 0; i < kCount; ++i) sum += a[i] * b[i];
    }
  }
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
  if (row < rows && part == 0) delta[row] = sum;
}

}  // namespace

void execute(const AttentionForward& op, const Frame& frame) {
  const View o = frame.view(op, op.o);
  const View lse = frame.view(op, op.lse);
  const TileInputs in = tile_inputs(op, frame);
  FPDT_ASSERT(accumulates(o) == accumulates(lse) && lse.dtype == Dtype::f32);
  FPDT_ASSERT(o.elements >= op.q_rows * op.heads * op.head_dim);
  FPDT_ASSERT(lse.elements >= op.q_rows * op.heads);
  with_float_type(o.dtype, [&](auto type) {
    using Out = decltype(type);
    with_head_size(op.head_dim, [&](auto size) {
      constexpr int kDim = decltype(size)::value;
      with_room<Shape<kDim, false>::kSharedBytes>([&](auto small) {
        using S = Shape<kDim, decltype(small)::value>;
        const std::int64_t blocks = (op.q_rows + S::kQueries - 1) / S::kQueries * op.heads;
        launch(attend<S, Out>, grid_of(blocks, 1), S::kThreads, S::kSharedBytes, frame.stream,
               ForwardTile<Out>{in, elements<Out>(o), elements<float>(lse), accumulates(o)});
      });
    });
  });
}

// Bound by memory: reads o and dout once.
void execute(const AttentionDelta& op, const Frame& frame) {
  constexpr int kThreads = 256;
  const View o = frame.view(op, op.o);
  const View dout = frame.view(op, op.dout);
  const View delta = frame.view(op, op.delta);
  const std::int64_t rows = op.rows * op.heads;
  FPDT_ASSERT(std::min(o.elements, dout.elements) >= rows * op.head_dim);
  FPDT_ASSERT(delta.elements >= rows && delta.dtype == Dtype::f32);
  with_float_type(o.dtype, [&](auto o_type) {
    with_float_type(dout.dtype, [&](auto dout_type) {
      using O = decltype(o_type);
      using G = decltype(dout_type);
      const auto kernel = op.head_dim % 4 == 0 ? delta_of_rows<4, O, G> : delta_of_rows<1, O, G>;
      launch(kernel, grid_of(rows, kThreads / 8), kThreads, 0, frame.stream, rows, op.head_dim,
             elements<O>(o), elements<G>(dout), elements<float>(delta));
    });
  });
}

}  // namespace fpdt::cuda
