// The memory that cuDNN's attention kernels need beside a tile's operands.
//
// cuDNN cannot accumulate into its outputs. It writes a tile to the workspace, and the backend
// merges or adds it. The sizes are those that cuDNN 9.19 reports in its support check on sm_80 and
// sm_90; its own 256 bytes are counted as 64 KiB.
#pragma once

#include <cstdint>

#include "fpdt/base/units.h"

namespace fpdt {

enum class AttentionDirection : std::uint8_t { forward, backward };

// Query heads of each KV head that one backward launch computes: all h/g, or the largest divisor of
// h/g whose launch has at most 2^19 rows, where each head counts max(64K, q_rows). At least one.
// Larger launches would not fill a GPU better (they have one block for each 128 keys of a head),
// and each member takes memory.
std::int64_t backward_members(std::int64_t q_rows, std::int64_t heads, std::int64_t kv_heads);

// Bytes that suffice on any GPU for a tile of q_rows queries and k_rows keys, with h query heads,
// g KV heads, head size D and m = backward_members():
//   forward   lse 4*h*q_rows, o 2*h*q_rows*D
//   backward  lse and delta 8*g*m*q_rows, o 2*g*m*q_rows*D, dq 4*g*m*q_rows*D and as much again for
//             sm_80, dk and dv 4*g*m*D for each key of a piece (key_pieces.h)
Bytes attention_workspace_bytes(AttentionDirection direction, std::int64_t q_rows,
                                std::int64_t k_rows, std::int64_t heads, std::int64_t kv_heads,
                                std::int64_t head_dim);

}  // namespace fpdt
