// What surrounds the attention tile of a library: operands and results go between the layouts of
// our ops, token by token, and those that the library wants, head by head.
//
// A library that knows only as many query heads as KV heads computes a tile in one or more
// launches, each of some members of every KV head: members first .. first + members of the heads /
// kv_heads query heads that share it. Everything that a library reads or writes for one launch is
// called a group; in it h' = kv_heads * members, and a head is [member, KV head].
#pragma once

#include <cstdint>

#include "fpdt/cuda/frame.h"

namespace fpdt::cuda {

struct HeadGroup {
  std::int64_t rows = 0;                               // of queries
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;  // of the op: h, g, D
  std::int64_t first = 0, members = 1;                 // of heads / kv_heads
};

// (o, lse) of an op, [rows, h*D] and [rows, h]: written, or merged with, the tile's normalised
// output tile_o f32 [rows, h*D] and its log-sum-exp tile_lse f32 [h, rows], finite in every row.
void merge_tile(std::int64_t rows, std::int64_t heads, std::int64_t head_dim, const float* tile_o,
                const float* tile_lse, const View& o, const View& lse, Stream stream);

// The group's part of lse [rows, h] as group_lse [h', rows]; zeros in group_dq f32 [h', rows, D];
// and a stand-in for the output of attention, group_o bf16 [rows, h'*D], the members of a KV head
// side by side, for libraries that take delta = rowsum(dout * o) from o itself: group_o = delta /
// |dout|^2 * dout (0 where dout is). Its products with dout have one sign, so its rounding to bf16
// changes delta by less than one part in 2^8, and |group_o| <= |o|. dout is bf16 [rows, h*D], delta
// [rows, h].
void split_gradient(const HeadGroup& group, const View& dout, const View& lse, const View& delta,
                    float* group_lse, std::byte* group_o, float* group_dq, Stream stream);

// dq [rows, h*D] f32: the group's heads written, or added to, from group_dq f32 [h', rows, D].
void join_gradient(const HeadGroup& group, const float* group_dq, const View& dq, Stream stream);

// target f32 [count], count a multiple of 4: written, or added to, with the sum of `members` tiles
// f32 [count] that follow each other, in their order.
void add_members(std::int64_t count, std::int64_t members, const float* tiles, const View& target,
                 bool accumulate, Stream stream);

}  // namespace fpdt::cuda
