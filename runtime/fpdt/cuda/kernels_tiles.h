// Kernels around a library's attention tile. They convert operands and results between the layouts
// of our ops, token by token, and those of the library, head by head.
//
// A library that requires as many KV heads as query heads computes a tile in one or more launches.
// Each launch takes some members of every KV head: members first .. first + members of the heads /
// kv_heads query heads that share it. A group is everything that the library reads or writes in one
// launch. It has h' = kv_heads * members heads, ordered [member, KV head].
#pragma once

#include <cstdint>

#include "fpdt/cuda/frame.h"

namespace fpdt::cuda {

struct HeadGroup {
  std::int64_t rows = 0;                               // of queries
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;  // of the op: h, g, D
  std::int64_t first = 0, members = 1;                 // out of heads / kv_heads
};

// Writes (o, lse) of an op, [rows, h*D] and [rows, h], or merges a tile into them: its normalised
// output tile_o bf16 [rows, h*D] and its log-sum-exp tile_lse f32 [h, rows], finite in every row.
void merge_tile(std::int64_t rows, std::int64_t heads, std::int64_t head_dim,
                const std::byte* tile_o, const float* tile_lse, const View& o, const View& lse,
                Stream stream);

// Writes the group's part of lse [rows, h] to group_lse [h', rows]. dout is bf16 [rows, h*D], delta
// [rows, h].
//
// Also writes group_o bf16 [rows, h'*D], the members of a KV head side by side: a stand-in for the
// output of attention, for libraries that take delta = rowsum(dout * o) from o itself. group_o =
// delta / |dout|^2 * dout (0 if dout is 0). Its products with dout have one sign, so its rounding
// to bf16 changes delta by less than one part in 2^8, and |group_o| <= |o|.
void split_gradient(const HeadGroup& group, const View& dout, const View& lse, const View& delta,
                    float* group_lse, std::byte* group_o, Stream stream);

// Writes or adds the group's heads to dq [rows, h*D] f32, from group_dq bf16 [rows, h'*D], in the
// order of group_o.
void join_gradient(const HeadGroup& group, const std::byte* group_dq, const View& dq,
                   Stream stream);

// Writes or adds to target f32 [count] the sum of `members` consecutive tiles bf16 [count], in
// their order. `count` must be a multiple of 4.
void add_members(std::int64_t count, std::int64_t members, const std::byte* tiles,
                 const View& target, bool accumulate, Stream stream);

}  // namespace fpdt::cuda
