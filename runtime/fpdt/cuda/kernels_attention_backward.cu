// The gradient of an attention tile (Dao et al., arXiv 2205.14135, algorithm 4). Every sum has a
// fixed order: no atomics.
//
//   p = exp(scale q k^T - lse),  dv += p^T do,  ds = p (do v^T - delta),  dq += scale ds k,
//   dk += scale ds^T q.
//
// With a cap, scale q k^T passes it before all else, and ds has its slope as a factor.
//
// Two kernels mirror each other, and both compute p and ds. One keeps a block of keys and values,
// while the queries of their whole group of heads pass in ascending order. It works on p^T, whose
// rows are keys, so that dk and dv stay in registers. The other keeps a block of queries, while
// keys pass. The passing side has two buffers: one is filled while the other is worked on.
//
// Queries that have seen no key, and rows past the last query, have lse = infinity here, which
// makes their p zero.
//
// Napkin: per head 8 q k D operations for dk and dv, and 6 for dq. Only 10 of these 14 are counted,
// as for kernels that compute p once. Bound by the tensor cores. Expected: about 60 % of
// FlashAttention-2 (185 TFLOP/s on an A100, 320 on an H100) at first, and 75 % with tuning. Not
// measured yet.
#include "fpdt/cuda/kernels.h"
#include "fpdt/cuda/kernels_attention.h"

namespace fpdt::cuda {
namespace {

// The data of a query that both kernels need.
struct alignas(16) Query {
  float lse;  // in units of log 2
  float delta;
  Span keys;  // keys that the query sees
};

struct GradientTile {
  TileInputs in;
  const bf16* dout;
  const float* lse;
  const float* delta;
  float* dq;
  float* dkv;
  bool accumulate_dq, accumulate_dkv;

  __device__ __forceinline__ Query query(int row, int head) const {
    const std::int64_t at = static_cast<std::int64_t>(row) * in.heads + head;
    const float lse_of_row = row < in.mask.q_rows ? lse[at] : kMinusInfinity;
    const bool seen = lse_of_row > kMinusInfinity;
    return {seen ? lse_of_row * kLog2OfE : -kMinusInfinity, seen ? delta[at] : 0.0F,
            in.mask.seen(row)};
  }
};

// `small`: for GPUs with less shared memory.
template <int kDim_, bool small>
struct Shape {
  static constexpr int kDim = kDim_;
  static constexpr int kRows = kDim == 128 && !small ? 128 : 64;  // rows that stay; a warp has 16
  // Rows that pass at a time.
  static constexpr int kStream = kDim <= 128 ? 64 : (kDim == 192 ? 64 : 32) / (small ? 2 : 1);
  static constexpr int kParts = kDim <= 128 ? 1 : 2;     // warps that share dk and dv of their rows
  static constexpr int kPart = kDim / kParts;            // columns of dk and dv of a warp
  static constexpr int kGroups = kRows / 16;
  static constexpr int kQueryThreads = kGroups * kWarp;
  static constexpr int kKeyThreads = kQueryThreads * kParts;
  static constexpr int kQueryBytes = (2 * kRows + 4 * kStream) * kDim * 2;
  static constexpr int kKeyBytes = kQueryBytes + 2 * kStream * static_cast<int>(sizeof(Query));
  static_assert(kKeyBytes <= (small ? kAttentionSharedLeast : kAttentionSharedMost));
};

// The tiles of a block in shared memory: two that stay, and two pairs that pass.
template <class S>
struct Room {
  static constexpr int kKept = S::kRows * S::kDim;
  static constexpr int kPassing = S::kStream * S::kDim;
  bf16* data;

  __device__ __forceinline__ SharedTile<S::kDim> kept(int which) const {
    return {data + which * kKept};
  }
  __device__ __forceinline__ SharedTile<S::kDim> passing(int which, int turn) const {
    return {data + 2 * kKept + (2 * turn + which) * kPassing};
  }
  __device__ __forceinline__ Query* queries(int turn) const {
    return reinterpret_cast<Query*>(data + 2 * kKept + 4 * kPassing) + turn * S::kStream;
  }
};

// Turns scores into p, and do v^T into ds. of(i) is query i, counted from the thread's first as in
// `hide`. per_cap = scale / cap, 0 without a cap.
template <bool transposed, int kBlocks, class Of>
__device__ __forceinline__ void differentiate(Products<1, kBlocks>& scores,
                                              Products<1, kBlocks>& ds, const TileInputs& in,
                                              Of&& of) {
  const float scale = in.scale * kLog2OfE;
  const float per_cap = in.cap > 0 ? in.scale / in.cap : 0;
#pragma unroll
  for (int j = 0; j < kBlocks; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const Query& query = of(transposed ? 8 * j + e % 2 : e / 2 * 8);
      // At most 1, also where the score is hidden.
      const float part = in.cap > 0 ? fminf(fabsf(scores[0][j][e]) * per_cap, 1.0F) : 0.0F;
      const float p = fast_exp2(fmaf(scores[0][j][e], scale, -query.lse));
      scores[0][j][e] = p;
      ds[0][j][e] = p * (ds[0][j][e] - query.delta) * (1 - part * part);
    }
  }
}

// Writes or adds factor * c to `rows` rows and `columns` columns of a matrix.
template <int kBlocks>
__device__ __forceinline__ void deliver(const Products<1, kBlocks>& c, float factor, float* to,
                                        std::int64_t stride, int rows, int columns,
                                        bool accumulate) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = row_first() + 8 * h;
    if (row >= rows) continue;
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      const int column = column_first() + 8 * j;
      if (column >= columns) continue;
      float* at = to + row * stride + column;
      float pair[2] = {0, 0};
      if (accumulate) load_pack(at, pair);
      pair[0] += factor * c[0][j][2 * h];
      pair[1] += factor * c[0][j][2 * h + 1];
      store_pack(at, pair);
    }
  }
}

template <class S>
__global__ void __launch_bounds__(S::kKeyThreads) gradient_of_keys(const GradientTile tile) {
  const TileInputs& in = tile.in;
  // Blocks that the most queries see come first.
  const unsigned blocks = (in.mask.k_rows + S::kRows - 1) / S::kRows;
  const int first = static_cast<int>(blockIdx.x % blocks) * S::kRows;
  const int kv_head = static_cast<int>(blockIdx.x / blocks);
  const Span queries = in.mask.queries_of(first, S::kRows);
  if (queries.empty() && tile.accumulate_dkv) return;

  const Room<S> room{dynamic_shared<bf16>()};
  const int tiles = queries.empty() ? 0 : (queries.end - queries.first - 1) / S::kStream + 1;
  const int steps = tiles * in.group();
  Query next{};
  const auto fetch = [&](int step) {
    const int head = kv_head * in.group() + step / tiles;
    const int at = queries.first + step % tiles * S::kStream;
    room.passing(0, step % 2)
        .template load<S::kStream, S::kKeyThreads>(in.query_rows(in.q, head), at);
    room.passing(1, step % 2)
        .template load<S::kStream, S::kKeyThreads>(in.query_rows(tile.dout, head), at);
    commit_copies();
    if (threadIdx.x < S::kStream) next = tile.query(at + static_cast<int>(threadIdx.x), head);
  };
  if (steps > 0) {
    room.kept(0).template load<S::kRows, S::kKeyThreads>(in.keys(kv_head), first);
    room.kept(1).template load<S::kRows, S::kKeyThreads>(in.values(kv_head), first);
    fetch(0);
  }
  const int row = warp() % S::kGroups * 16;
  const int part = warp() / S::kGroups;
  Products<1, S::kPart / 8> dk = {};
  Products<1, S::kPart / 8> dv = {};
  for (int step = 0; step < steps; ++step) {
    const Query* of = room.queries(step % 2);
    if (threadIdx.x < S::kStream) room.queries(step % 2)[threadIdx.x] = next;
    await_copies<0>();
    __syncthreads();
    if (step + 1 < steps) fetch(step + 1);
    const SharedTile<S::kDim> q = room.passing(0, step % 2);
    const SharedTile<S::kDim> dout = room.passing(1, step % 2);
    Products<1, S::kStream / 8> p = {};
    Products<1, S::kStream / 8> ds = {};
    multiply_rows(p, room.kept(0), row, q);
    if (in.cap > 0) soften(p, in.scale, in.cap);
    const Span common{of[S::kStream - 1].keys.first, of[0].keys.end};
    if (!common.holds(first, S::kRows)) {
      hide<true>(p, [&](int i) { return of[column_first() + i].keys.from(first + row); });
    }
    multiply_rows(ds, room.kept(1), row, dout);
    differentiate<true>(p, ds, in, [&](int i) -> const Query& { return of[column_first() + i]; });
    multiply_add(dv, p, dout, part * S::kPart / 16);
    multiply_add(dk, ds, q, part * S::kPart / 16);
  }
  const int rows = in.mask.k_rows - first - row;
  const int columns = in.size - part * S::kPart;
  float* to = tile.dkv + (first + row) * in.kv_stride() + kv_head * in.size + part * S::kPart;
  deliver(dk, in.scale, to, in.kv_stride(), rows, columns, tile.accumulate_dkv);
  deliver(dv, 1, to + in.kv_heads * in.size, in.kv_stride(), rows, columns, tile.accumulate_dkv);
}

template <class S>
__global__ void __launch_bounds__(S::kQueryThreads) gradient_of_queries(const GradientTile tile) {
  const TileInputs& in = tile.in;
  // Blocks that see the most keys come first.
  const unsigned blocks = (in.mask.q_rows + S::kRows - 1) / S::kRows;
  const int first = static_cast<int>(blocks - 1 - blockIdx.x % blocks) * S::kRows;
  const int head = static_cast<int>(blockIdx.x / blocks);
  const Span keys = in.mask.keys_of(first, S::kRows);
  const Span common = in.mask.common(first, S::kRows);
  if (keys.empty() && tile.accumulate_dq) return;

  const Room<S> room{dynamic_shared<bf16>()};
  const auto fetch = [&](int at, int turn) {
    const int kv_head = head / in.group();
    room.passing(0, turn).template load<S::kStream, S::kQueryThreads>(in.keys(kv_head), at);
    room.passing(1, turn).template load<S::kStream, S::kQueryThreads>(in.values(kv_head), at);
    commit_copies();
  };
  if (!keys.empty()) {
    room.kept(0).template load<S::kRows, S::kQueryThreads>(in.query_rows(in.q, head), first);
    room.kept(1).template load<S::kRows, S::kQueryThreads>(in.query_rows(tile.dout, head), first);
    fetch(keys.first, 0);
  }
  const int row = warp() * 16;
  const Query own[2] = {tile.query(first + row + row_first(), head),
                        tile.query(first + row + row_first() + 8, head)};
  Products<1, S::kDim / 8> dq = {};
  int turn = 0;
  for (int at = keys.first; at < keys.end; at += S::kStream, turn = 1 - turn) {
    await_copies<0>();
    __syncthreads();
    if (at + S::kStream < keys.end) fetch(at + S::kStream, 1 - turn);
    const SharedTile<S::kDim> k = room.passing(0, turn);
    Products<1, S::kStream / 8> p = {};
    Products<1, S::kStream / 8> ds = {};
    multiply_rows(p, room.kept(0), row, k);
    if (in.cap > 0) soften(p, in.scale, in.cap);
    if (!common.holds(at, S::kStream)) {
      hide<false>(p, [&](int i) { return own[i / 8].keys.from(at); });
    }
    multiply_rows(ds, room.kept(1), row, room.passing(1, turn));
    differentiate<false>(p, ds, in, [&](int i) -> const Query& { return own[i / 8]; });
    multiply_add(dq, ds, k, 0);
  }
  deliver(dq, in.scale, tile.dq + (first + row) * in.q_stride() + head * in.size, in.q_stride(),
          in.mask.q_rows - first - row, in.size, tile.accumulate_dq);
}

}  // namespace

void execute(const AttentionBackward& op, const Frame& frame) {
  const TileInputs in = tile_inputs(op, frame);
  const View dout = frame.view(op, op.dout);
  const View lse = frame.view(op, op.lse);
  const View delta = frame.view(op, op.delta);
  const View dq = frame.view(op, op.dq);
  const View dkv = frame.view(op, op.dkv);
  const std::int64_t q_elements = op.q_rows * op.heads * op.head_dim;
  FPDT_ASSERT(dout.dtype == Dtype::bf16 && whole_chunks(dout) && dout.elements >= q_elements);
  FPDT_ASSERT(lse.dtype == Dtype::f32 && lse.elements >= op.q_rows * op.heads);
  FPDT_ASSERT(delta.dtype == Dtype::f32 && delta.elements >= op.q_rows * op.heads);
  FPDT_ASSERT(dq.dtype == Dtype::f32 && dq.elements >= q_elements);
  FPDT_ASSERT(dkv.dtype == Dtype::f32 && dkv.elements >= op.k_rows * 2 * op.kv_heads * op.head_dim);
  const GradientTile tile{in,
                          elements<bf16>(dout),
                          elements<float>(lse),
                          elements<float>(delta),
                          elements<float>(dq),
                          elements<float>(dkv),
                          accumulates(dq),
                          accumulates(dkv)};
  with_head_size(op.head_dim, [&](auto size) {
    constexpr int kDim = decltype(size)::value;
    with_room<Shape<kDim, false>::kKeyBytes>([&](auto small) {
      using S = Shape<kDim, decltype(small)::value>;
      const auto blocks = [](std::int64_t rows) { return (rows + S::kRows - 1) / S::kRows; };
      launch(gradient_of_keys<S>, grid_of(blocks(op.k_rows) * op.kv_heads, 1), S::kKeyThreads,
             S::kKeyBytes, frame.stream, tile);
      launch(gradient_of_queries<S>, grid_of(blocks(op.q_rows) * op.heads, 1), S::kQueryThreads,
             S::kQueryBytes, frame.stream, tile);
    });
  });
}

}  // namespace fpdt::cuda
