// Attention tiles as cuDNN 9.19 takes them: which, and as what graph.
//
// There is no one operation for masked or backward attention in this cuDNN: it recognises a pattern
// of products, reductions and pointwise functions, and no other order of them. Found out with its
// support check, which needs no GPU:
// - The log-sum-exp must be [heads, rows] (NVIDIA tests no other layout).
// - Outputs may be f32 though inputs are bf16, but not dk and dv when there are fewer KV heads than
//   query heads. Batches may share their keys by a stride of 0.
// - Backward takes delta only as rowsum(dout * o) of an o in the graph.
// - dq as an f32 output of the last product is what engines add to by atomics; without it they
//   would keep a bf16 matrix of all scores.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "fpdt/cuda/cudnn_graph.h"
#include "fpdt/schedule/op.h"

namespace fpdt::cuda {

// Which keys of a tile its queries see: none of them; all; those up to the diagonal that begins in
// the top left corner, or ends in the bottom right one; or a shape that cuDNN has no mask for.
enum class MaskShape : std::uint8_t { nothing, everything, top_left, bottom_right, other };
MaskShape mask_of(std::int64_t q_first, std::int64_t q_rows, std::int64_t k_first,
                  std::int64_t k_rows);

enum class Direction : std::uint8_t { forward, backward };

// As in the ops: h query heads, g KV heads of D.
struct AttentionTile {
  Direction direction = Direction::forward;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t q_rows = 0, k_rows = 0;
  MaskShape mask = MaskShape::everything;
  double scale = 1;
  // Backward: how many of the h/g query heads of each KV head a launch takes; divides h/g.
  std::int64_t members = 1;

  auto operator<=>(const AttentionTile&) const = default;
};
AttentionTile tile_of(const AttentionForward& op);
AttentionTile tile_of(const AttentionBackward& op, std::int64_t members = 1);

// Such as "attention forward of 4096 queries and 8192 keys, 4 and 1 heads of 128".
std::string describe(const AttentionTile& tile);
// Why cuDNN is not to compute the tile on any GPU, and the nearest remedy; empty when it may.
std::string why_not(const AttentionTile& tile);

// q bf16 [q_rows, h*D], k and v the halves of bf16 [k_rows, 2*g*D]; to o f32 [q_rows, h*D] and lse
// f32 [h, q_rows].
struct ForwardTensors {
  Tensor q, k, v, o, lse;
};
ForwardTensors add_forward(Graph& graph, const AttentionTile& tile);

// Of m members of every KV head, which are the batch of the graph: each has its own gradients, and
// all read the same k and v (batch stride 0), so there are as many KV heads as query heads. From q
// and dout bf16, g*m heads out of [q_rows, h*D]; k and v as above; o bf16 [q_rows, g*m*D], the m
// members of a KV head side by side; lse and delta f32 [m, g, q_rows], of which delta is written;
// to dq f32 [m, g, q_rows, D] and dk and dv, the halves of f32 [m, k_rows, 2*g*D].
struct BackwardTensors {
  Tensor q, k, v, dout, o, lse, delta, dq, dk, dv;
};
BackwardTensors add_backward(Graph& graph, const AttentionTile& tile);

}  // namespace fpdt::cuda
