// The attention tiles that cuDNN 9.19 can compute, and the graphs that describe them.
//
// This cuDNN has no single operation for masked or backward attention. It recognises a pattern of
// products, reductions and pointwise functions, and accepts no other order of them. It has these
// limits:
// - The log-sum-exp must be [heads, rows] (NVIDIA tests no other layout).
// - Outputs have the type of the inputs. The support check accepts o, dk and dv in f32, but on an
//   H200 the engine wrote bf16 there.
// - Batches may share their keys by a stride of 0.
// - Backward takes delta only as rowsum(dout * o) of an o in the graph.
// - Engines add up dq by atomics, in an f32 output of the last product whose order of elements is
//   theirs. A copy of it must follow, which gives dq. Otherwise they would keep a bf16 matrix of
//   all scores. The support check accepts a graph without the copy, and a run then fails.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "fpdt/cuda/cudnn_graph.h"
#include "fpdt/schedule/op.h"

namespace fpdt::cuda {

// Which keys of a tile its queries see: none; all; those up to the diagonal that begins in the top
// left corner, or that ends in the bottom right one; or a shape for which cuDNN has no mask.
enum class MaskShape : std::uint8_t { nothing, everything, top_left, bottom_right, other };
MaskShape mask_of(std::int64_t q_first, std::int64_t q_rows, std::int64_t k_first,
                  std::int64_t k_rows);

enum class Direction : std::uint8_t { forward, backward };

// Fields as in the ops: h query heads and g KV heads of size D.
struct AttentionTile {
  Direction direction = Direction::forward;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t q_rows = 0, k_rows = 0;
  MaskShape mask = MaskShape::everything;
  double scale = 1;
  // Backward: the number of the h/g query heads of each KV head in one launch; divides h/g.
  std::int64_t members = 1;
  std::int64_t window = 0;  // that hides keys of the tile; 0: none does

  auto operator<=>(const AttentionTile&) const = default;
};
// The tile of an op as one rank computes it.
AttentionTile tile_of(const AttentionForward& op, std::int64_t rank);
AttentionTile tile_of(const AttentionBackward& op, std::int64_t rank, std::int64_t members = 1);

// For example "attention forward of 4096 queries and 8192 keys, 4 and 1 heads of 128".
std::string describe(const AttentionTile& tile);
// The reason why cuDNN can compute the tile on no GPU, and the nearest remedy; empty if it can.
std::string why_not(const AttentionTile& tile);

// In: q bf16 [q_rows, h*D]; k and v, the halves of bf16 [k_rows, 2*g*D]. Out: o bf16 [q_rows, h*D]
// and lse f32 [h, q_rows].
struct ForwardTensors {
  Tensor q, k, v, o, lse;
};
ForwardTensors add_forward(Graph& graph, const AttentionTile& tile);

// One launch for m members of every KV head. The members are the batch of the graph: each has its
// own gradients, and all read the same k and v (batch stride 0), so there are as many KV heads as
// query heads.
//
// In: q and dout bf16, g*m heads out of [q_rows, h*D]; k and v as above; o bf16 [q_rows, g*m*D],
// the m members of a KV head side by side; lse f32 [m, g, q_rows]. Out: delta f32 [m, g, q_rows];
// dq_sum f32 [m, g, q_rows, D], in the engine's order; dq bf16 as o, whose memory it may take; dk
// and dv, the halves of bf16 [m, k_rows, 2*g*D].
struct BackwardTensors {
  Tensor q, k, v, dout, o, lse, delta, dq_sum, dq, dk, dv;
};
BackwardTensors add_backward(Graph& graph, const AttentionTile& tile);

}  // namespace fpdt::cuda
