// Code shared by the attention kernels: a tile's mask, tiles of rows in shared memory, and the two
// products on the tensor cores.
//
// Both passes move data in the same way (Dao, arXiv 2307.08691): a warp owns 16 or 32 rows of one
// factor, which stays in shared memory, and blocks of the other factor pass through it. Scores
// never leave the registers: mma_bf16 leaves a product [16,16] in the registers from which its next
// call reads a first factor, once rounded to bf16.
//
// In shared memory a row of a head has kDim elements, padded with zeros if the head is smaller or
// the rows end. Its 16-byte chunks are permuted by an XOR with bits of the row's number, so that
// the eight rows that load_matrices reads at a time lie in different banks.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "fpdt/cuda/device.h"
#include "fpdt/cuda/kernels_attention_limits.h"

namespace fpdt::cuda {

inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
inline constexpr float kLog2OfE = 1.44269504F;
inline constexpr float kLogOf2 = 0.693147181F;

// Rows [first, end) of a tile's queries or keys.
struct alignas(8) Span {
  int first, end;
  __device__ __forceinline__ bool empty() const { return first >= end; }
  __device__ __forceinline__ bool holds(int from, int count) const {
    return first <= from && from + count <= end;
  }
  __device__ __forceinline__ Span from(int origin) const { return {first - origin, end - origin}; }
};

// Which keys a query sees, as rows of the tile: query i sees [low(i), high(i)). Neither bound
// decreases from one query to the next, because documents begin in the order of their tokens, and a
// window moves with its query.
struct Mask {
  const std::int32_t* documents;  // from the tile's first query on; null: one document
  std::int64_t k_first;
  std::int64_t shift;  // q_first - k_first
  int q_rows, k_rows;
  std::int64_t window;  // 0: none

  __device__ __forceinline__ int clamp(std::int64_t key) const {
    return key < 0 ? 0 : key > k_rows ? k_rows : static_cast<int>(key);
  }
  __device__ __forceinline__ int low(int query) const {
    const int row = min(query, q_rows - 1);
    const int start = documents == nullptr ? 0 : clamp(__ldg(documents + row) - k_first);
    return window == 0 ? start : max(start, clamp(row + shift + 1 - window));
  }
  __device__ __forceinline__ int high(int query) const { return clamp(query + shift + 1); }

  __device__ __forceinline__ Span seen(int query) const { return {low(query), high(query)}; }
  // The keys that at least one of `count` queries sees. Ignores queries past the last row, as the
  // functions below do.
  __device__ __forceinline__ Span keys_of(int query, int count) const {
    return {low(query), high(min(query + count, q_rows) - 1)};
  }
  // The queries that see at least one of `count` keys.
  __device__ __forceinline__ Span queries_of(int key, int count) const {
    const std::int64_t causal = key - shift;
    Span seen{causal < 0 ? 0 : causal > q_rows ? q_rows : static_cast<int>(causal), q_rows};
    if (documents == nullptr && window == 0) return seen;
    // Bisection for the first query whose document or window begins after the keys.
    const int end = min(key + count, k_rows);
    int first = seen.first;
    while (first < seen.end) {
      const int middle = first + (seen.end - first) / 2;
      if (low(middle) < end) {
        first = middle + 1;
      } else {
        seen.end = middle;
      }
    }
    return seen;
  }
  // The keys that all of `count` queries see.
  __device__ __forceinline__ Span common(int query, int count) const {
    return {low(query + count - 1), high(query)};
  }
};

// Rows of one head in global memory.
struct HeadRows {
  const bf16* data;     // row 0
  std::int64_t stride;  // elements from a row to the next
  int rows;
  int size;  // D
};

// The operands that both passes read.
struct TileInputs {
  const bf16* q;
  const bf16* kv;
  Mask mask;
  int heads, kv_heads, size;  // size: D
  float scale;
  float cap;  // 0: none

  __device__ __forceinline__ int group() const { return heads / kv_heads; }
  __device__ __forceinline__ std::int64_t q_stride() const {
    return static_cast<std::int64_t>(heads) * size;
  }
  __device__ __forceinline__ std::int64_t kv_stride() const {
    return static_cast<std::int64_t>(2 * kv_heads) * size;
  }
  // The rows of a head of q, or of a matrix of its shape.
  __device__ __forceinline__ HeadRows query_rows(const bf16* from, int head) const {
    return {from + static_cast<std::int64_t>(head) * size, q_stride(), mask.q_rows, size};
  }
  __device__ __forceinline__ HeadRows keys(int kv_head) const {
    return {kv + static_cast<std::int64_t>(kv_head) * size, kv_stride(), mask.k_rows, size};
  }
  __device__ __forceinline__ HeadRows values(int kv_head) const { return keys(kv_heads + kv_head); }
};

__device__ __forceinline__ int warp() { return static_cast<int>(threadIdx.x / kWarp); }

// Rows of a head in shared memory.
template <int kDim>
struct SharedTile {
  static constexpr int kChunks = kDim / 8;
  static_assert(kDim % 32 == 0);
  bf16* data;

  // If a row is a multiple of 128 bytes, every row begins in bank 0. Otherwise only every other row
  // does, so half as many permutations suffice.
  static constexpr int kTurns = kDim % 64 == 0 ? 8 : 4;
  __device__ __forceinline__ static int turn(int row) {
    return kTurns == 8 ? row & 7 : row >> 1 & 3;
  }
  // Loads the [16,16] block at (row, 16*k) by load_matrices. Its quarters are upper left, lower
  // left, upper right, lower right. `row` must be a multiple of 16.
  template <bool transposed>
  __device__ __forceinline__ void block(unsigned (&to)[4], int row, int k) const {
    // Only a few sums depend on the lane; the rest are constants. Addresses cost registers.
    const int own = lane() % 16;
    const int chunk = 2 * k % kTurns ^ lane() / 16 ^ turn(own);
    load_matrices<transposed>(
        to, data + (own * kDim + 8 * chunk) + (row * kDim + 2 * k / kTurns * kTurns * 8));
  }
  // Starts to copy rows [first, first + kRows) into the tile, by a block of kThreads. A thread
  // stays in its column and, if possible, in its place among eight rows, so that addresses differ
  // by constants.
  template <int kRows, int kThreads>
  __device__ __forceinline__ void load(const HeadRows& from, int first) const {
    constexpr int kFit = kThreads / kChunks;
    constexpr int kStep = kFit >= 8 ? kFit / 8 * 8 : kFit >= 4 ? 4 : 2;
    static_assert(kRows % kStep == 0 && kStep <= kFit);
    if (threadIdx.x >= kStep * kChunks) return;
    const int begin = static_cast<int>(threadIdx.x / kChunks);
    const int column = static_cast<int>(threadIdx.x % kChunks) * 8;
    const bf16* source = from.data + (first + begin) * from.stride + column;
    const int rows = column < from.size ? from.rows - first : 0;
#pragma unroll
    for (int i = 0; i < kRows; i += kStep) {
      const bool valid = begin + i < rows;
      bf16* target = data + (begin + i) * kDim + 8 * (column / 8 ^ turn(begin + i % 8));
      copy_async(target, valid ? source + i * from.stride : from.data, valid);
    }
  }
};

// A thread's elements of kTiles products [16, 8*kBlocks], in the layout of mma_bf16.
template <int kTiles, int kBlocks>
using Products = float[kTiles][kBlocks][4];

// c += a b^T over a head, for rows [row, +16*kTiles) of a and the first 8*kBlocks rows of b.
template <int kDim, int kTiles, int kBlocks>
__device__ __forceinline__ void multiply_rows(Products<kTiles, kBlocks>& c, SharedTile<kDim> a,
                                              int row, SharedTile<kDim> b) {
#pragma unroll
  for (int k = 0; k < kDim / 16; ++k) {
    unsigned of_a[kTiles][4];
#pragma unroll
    for (int i = 0; i < kTiles; ++i) a.template block<false>(of_a[i], row + 16 * i, k);
#pragma unroll
    for (int j = 0; j < kBlocks / 2; ++j) {
      unsigned of_b[4];
      b.template block<false>(of_b, 16 * j, k);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        mma_bf16(c[i][2 * j], of_a[i], of_b[0], of_b[2]);
        mma_bf16(c[i][2 * j + 1], of_a[i], of_b[1], of_b[3]);
      }
    }
  }
}

// c += p b, with the p of multiply_rows rounded to bf16, rows [0, 8*kInner) of b, and columns of b
// from 16*first on.
template <int kDim, int kTiles, int kInner, int kBlocks>
__device__ __forceinline__ void multiply_add(Products<kTiles, kBlocks>& c,
                                             const Products<kTiles, kInner>& p, SharedTile<kDim> b,
                                             int first) {
#pragma unroll
  for (int k = 0; k < kInner / 2; ++k) {
    unsigned of_p[kTiles][4];
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float* pair = &p[i][2 * k + j / 2][j % 2 * 2];
        of_p[i][j] = pack_bf16(pair[0], pair[1]);
      }
    }
#pragma unroll
    for (int j = 0; j < kBlocks / 2; ++j) {
      unsigned of_b[4];
      b.template block<true>(of_b, 16 * k, first + j);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        mma_bf16(c[i][2 * j], of_p[i], of_b[0], of_b[1]);
        mma_bf16(c[i][2 * j + 1], of_p[i], of_b[2], of_b[3]);
      }
    }
  }
}

// Element e of block j has row row_first() + 8 * (e / 2) and column column_first() + 8 * j + e % 2.
__device__ __forceinline__ int row_first() { return lane() / 4; }
__device__ __forceinline__ int column_first() { return lane() % 4 * 2; }

// Sets the scores that the mask hides to -infinity. Queries are the rows, or the columns if
// `transposed`. seen(i) returns the keys that query i sees, counting i from the thread's first
// query and keys from the product's first key.
template <bool transposed, int kTiles, int kBlocks, class Seen>
__device__ __forceinline__ void hide(Products<kTiles, kBlocks>& scores, Seen&& seen) {
  // One query at a time, comparing its bounds with constants, because registers are scarce here.
  constexpr int kRows = 2 * kTiles;
  constexpr int kColumns = 2 * kBlocks;
  const int key = transposed ? row_first() : column_first();
#pragma unroll
  for (int a = 0; a < (transposed ? kColumns : kRows); ++a) {
    const Span keys = seen(transposed ? a / 2 * 8 + a % 2 : a * 8);
#pragma unroll
    for (int b = 0; b < (transposed ? kRows : kColumns); ++b) {
      const int at = transposed ? b * 8 : b / 2 * 8 + b % 2;
      const int row = transposed ? b : a;
      const int column = transposed ? a : b;
      float& score = scores[row / 2][column / 2][row % 2 * 2 + column % 2];
      if (at < keys.first - key || at >= keys.end - key) score = kMinusInfinity;
    }
  }
}

// tanh of a product times `scale`.
__device__ __forceinline__ float fast_tanh(float product, float scale) {
  return 1 - 2 / (1 + fast_exp2(product * (2 * kLog2OfE * scale)));
}

// Caps scores softly before they are scaled: scale * score becomes cap * tanh(scale * score / cap).
template <int kTiles, int kBlocks>
__device__ __forceinline__ void soften(Products<kTiles, kBlocks>& scores, float scale, float cap) {
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        scores[i][j][e] = cap / scale * fast_tanh(scores[i][j][e], scale / cap);
      }
    }
  }
}

// Calls f with the head's size as a constant, rounded up to a size that has kernels.
template <class F>
void with_head_size(std::int64_t size, F&& f) {
  if (size <= 64) return f(std::integral_constant<int, 64>{});
  if (size <= 96) return f(std::integral_constant<int, 96>{});
  if (size <= 128) return f(std::integral_constant<int, 128>{});
  if (size <= 192) return f(std::integral_constant<int, 192>{});
  f(std::integral_constant<int, 256>{});
}

// Calls f with whether blocks must be smaller than those that take so much shared memory, because
// the GPU has less.
template <std::int64_t kBytes, class F>
void with_room(F&& f) {
  if constexpr (kBytes > kAttentionSharedLeast) {
    if (kBytes > static_cast<std::int64_t>(shared_memory_most())) return f(std::true_type{});
  }
  f(std::false_type{});
}

inline bool whole_chunks(const View& view) {
  return reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0;
}

// The operands q, kv and documents of an op that these kernels can compute.
template <class Op>
TileInputs tile_inputs(const Op& op, const Frame& frame) {
  const View q = frame.view(op, op.q);
  const View kv = frame.view(op, op.kv);
  const View documents = frame.view(op, op.documents);
  FPDT_ASSERT(serves(op, q.dtype) && kv.dtype == Dtype::bf16);
  FPDT_ASSERT(whole_chunks(q) && whole_chunks(kv));
  FPDT_ASSERT(q.elements >= op.q_rows * op.heads * op.head_dim);
  FPDT_ASSERT(kv.elements >= op.k_rows * 2 * op.kv_heads * op.head_dim);
  const std::int64_t q_first = op.q_first.at(frame.rank);
  const std::int64_t k_first = op.k_first.at(frame.rank);
  FPDT_ASSERT(!present(documents) || documents.elements >= q_first + op.q_rows);
  return {elements<bf16>(q),
          elements<bf16>(kv),
          {present(documents) ? elements<std::int32_t>(documents) + q_first : nullptr, k_first,
           q_first - k_first, static_cast<int>(op.q_rows), static_cast<int>(op.k_rows), op.window},
          static_cast<int>(op.heads),
          static_cast<int>(op.kv_heads),
          static_cast<int>(op.head_dim),
          static_cast<float>(op.scale),
          static_cast<float>(op.cap)};
}

}  // namespace fpdt::cuda
