// Kernels around a library's attention tile: they merge results and change layouts. All are bound
// by memory and small beside the tile: a few bytes for each element of its operands, for which the
// tile has thousands of operations.
//
// A warp takes one row of one head. Its lanes take the elements in packs, so it reads and writes
// whole sectors.
#include <cmath>

#include "fpdt/cuda/device.h"
#include "fpdt/cuda/kernels_tiles.h"

namespace fpdt::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kBlocks = 1 << 16;
constexpr std::int64_t kHeadMost = 256;  // elements of a head
constexpr float kLeast = 0x1p-126F;      // least number with a finite reciprocal; less counts as 0

// The rows of heads that the whole warps of a grid take.
struct Warps {
  std::int64_t first, step;
};
__device__ __forceinline__ Warps warps_of_grid() {
  return {global_thread() / kWarp, global_threads() / kWarp};
}

template <class T>
__global__ void merge(std::int64_t rows, std::int64_t heads, std::int64_t head_dim,
                      const bf16* tile_o, const float* tile_lse, T* o, float* lse,
                      bool accumulate) {
  constexpr int kPart = 4;
  const Warps warps = warps_of_grid();
  const std::int64_t lane = threadIdx.x % kWarp;
  for (std::int64_t at = warps.first; at < rows * heads; at += warps.step) {
    const std::int64_t row = at / heads;
    const std::int64_t head = at % heads;
    const float fresh = tile_lse[head * rows + row];
    const float held = accumulate ? lse[at] : -INFINITY;
    const float larger = fmaxf(held, fresh);
    const float of_held = expf(held - larger);
    const float of_fresh = expf(fresh - larger);
    const float sum = of_held + of_fresh;
    for (std::int64_t d = lane * kPart; d < head_dim; d += kWarp * kPart) {
      float values[kPart];
      load_pack<kPart>(tile_o + at * head_dim + d, values);
      if (accumulate) {
        float before[kPart];
        load_pack<kPart>(o + at * head_dim + d, before);
#pragma unroll
        for (int i = 0; i < kPart; ++i) {
          values[i] = (of_held * before[i] + of_fresh * values[i]) / sum;
        }
      }
      store_pack<kPart>(o + at * head_dim + d, values);
    }
    __syncwarp();  // every lane has read lse
    if (lane == 0) lse[at] = larger + logf(sum);
  }
}

// One row of one head of a group: its number among them (row, KV head, member), its place in the
// op's [row, head], and its place in the library's [member, KV head, row].
struct Place {
  __device__ __forceinline__ Place(const HeadGroup& group, std::int64_t at) {
    const std::int64_t row = at / (group.kv_heads * group.members);
    const std::int64_t kv_head = at / group.members % group.kv_heads;
    const std::int64_t member = at % group.members;
    of_op = row * group.heads + kv_head * (group.heads / group.kv_heads) + group.first + member;
    of_library = (member * group.kv_heads + kv_head) * group.rows + row;
  }
  std::int64_t of_op, of_library;
};

// Reads dout once and writes o: 4 bytes per element. A lane keeps its elements in registers.
__global__ void split(HeadGroup group, const bf16* dout, const float* lse, const float* delta,
                      float* group_lse, bf16* group_o) {
  constexpr int kPart = 4;
  constexpr int kParts = kHeadMost / (kWarp * kPart);
  const Warps warps = warps_of_grid();
  const std::int64_t first = threadIdx.x % kWarp * kPart;
  const std::int64_t count = group.rows * group.kv_heads * group.members;
  for (std::int64_t at = warps.first; at < count; at += warps.step) {
    const Place place(group, at);
    float values[kParts][kPart] = {};
    float largest = 0.0F;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const std::int64_t d = first + part * kWarp * kPart;
      if (d < group.head_dim) {
        load_pack<kPart>(dout + place.of_op * group.head_dim + d, values[part]);
      }
#pragma unroll
      for (int i = 0; i < kPart; ++i) largest = fmaxf(largest, fabsf(values[part][i]));
    }
    largest = warp_max(largest);
    // Scaled by the largest element, squares do not overflow, and at least one does not vanish.
    const bool any = largest >= kLeast;
    const float scale = any ? 1.0F / largest : 0.0F;
    float squares = 0.0F;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int i = 0; i < kPart; ++i) {
        values[part][i] *= scale;
        squares += values[part][i] * values[part][i];
      }
    }
    squares = warp_sum(squares);
    const float factor = any ? delta[place.of_op] * scale / squares : 0.0F;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const std::int64_t d = first + part * kWarp * kPart;
      if (d >= group.head_dim) continue;
#pragma unroll
      for (int i = 0; i < kPart; ++i) values[part][i] *= factor;
      store_pack<kPart>(group_o + at * group.head_dim + d, values[part]);
    }
    if (first == 0) group_lse[place.of_library] = lse[place.of_op];
  }
}

// 6 bytes per element, 10 if it adds.
__global__ void join(HeadGroup group, const bf16* group_dq, float* dq, bool accumulate) {
  const Warps warps = warps_of_grid();
  const std::int64_t lane = threadIdx.x % kWarp;
  const std::int64_t count = group.rows * group.kv_heads * group.members;
  for (std::int64_t at = warps.first; at < count; at += warps.step) {
    const Place place(group, at);
    for (std::int64_t d = lane * 4; d < group.head_dim; d += kWarp * 4) {
      float values[4];
      load_pack<4>(group_dq + at * group.head_dim + d, values);
      put_pack<4>(dq + place.of_op * group.head_dim + d, values, accumulate);
    }
  }
}

// 2 bytes per element of each member. The target takes 4 more, 8 if it adds.
__global__ void sum_members(std::int64_t count, std::int64_t members, const bf16* tiles,
                            float* target, bool accumulate) {
  for (std::int64_t i = global_thread() * 4; i < count; i += global_threads() * 4) {
    float sum[4];
    load_pack<4>(tiles + i, sum);
    for (std::int64_t member = 1; member < members; ++member) {
      float values[4];
      load_pack<4>(tiles + member * count + i, values);
#pragma unroll
      for (int part = 0; part < 4; ++part) sum[part] += values[part];
    }
    put_pack<4>(target + i, sum, accumulate);
  }
}

std::int64_t rows_of(const HeadGroup& group) { return group.rows * group.kv_heads * group.members; }

unsigned grid_of_warps(std::int64_t warps) { return grid_of(warps, kThreads / kWarp, kBlocks); }

}  // namespace

void merge_tile(std::int64_t rows, std::int64_t heads, std::int64_t head_dim,
                const std::byte* tile_o, const float* tile_lse, const View& o, const View& lse,
                Stream stream) {
  FPDT_ASSERT(head_dim % 4 == 0 && o.access == lse.access);
  with_float_type(o.dtype, [&](auto type) {
    using T = decltype(type);
    launch(merge<T>, grid_of_warps(rows * heads), kThreads, 0, stream, rows, heads, head_dim,
           reinterpret_cast<const bf16*>(tile_o), tile_lse, elements<T>(o), elements<float>(lse),
           accumulates(o));
  });
}

void split_gradient(const HeadGroup& group, const View& dout, const View& lse, const View& delta,
                    float* group_lse, std::byte* group_o, Stream stream) {
  FPDT_ASSERT(group.head_dim % 4 == 0 && group.head_dim <= kHeadMost);
  FPDT_ASSERT(dout.dtype == Dtype::bf16);
  launch(split, grid_of_warps(rows_of(group)), kThreads, 0, stream, group, elements<bf16>(dout),
         elements<float>(lse), elements<float>(delta), group_lse, reinterpret_cast<bf16*>(group_o));
}

void join_gradient(const HeadGroup& group, const std::byte* group_dq, const View& dq,
                   Stream stream) {
  FPDT_ASSERT(group.head_dim % 4 == 0 && dq.dtype == Dtype::f32);
  launch(join, grid_of_warps(rows_of(group)), kThreads, 0, stream, group,
         reinterpret_cast<const bf16*>(group_dq), elements<float>(dq), accumulates(dq));
}

void add_members(std::int64_t count, std::int64_t members, const std::byte* tiles,
                 const View& target, bool accumulate, Stream stream) {
  FPDT_ASSERT(count % 4 == 0 && members > 0 && target.dtype == Dtype::f32);
  launch(sum_members, grid_of(count / 4, kThreads, kBlocks), kThreads, 0, stream, count, members,
         reinterpret_cast<const bf16*>(tiles), elements<float>(target), accumulate);
}

}  // namespace fpdt::cuda
