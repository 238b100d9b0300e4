// The memory that cuDNN's attention kernels need beside a tile's operands.
//
// cuDNN cannot add to what is there, so the backend has it write a tile to the workspace, and
// merges or adds it. The bytes are those that cuDNN 9.19 asks for on sm_80 and sm_90, by its
// support check; its own need, 256 bytes, is counted as 64 KiB.
#pragma once

#include <cstdint>

#include "fpdt/base/units.h"

namespace fpdt {

enum class AttentionDirection : std::uint8_t { forward, backward };

// A launch of backward takes so many of the h/g query heads that share each of the g KV heads: all,
// or as many (a divisor) as have 2^19 rows together, 64K or the queries' of each. More blocks would
// not fill a GPU better (there is one for each 128 keys of a head), and members cost memory each.
std::int64_t backward_members(std::int64_t q_rows, std::int64_t heads, std::int64_t kv_heads);

// Bytes that suffice on any GPU for a tile of q_rows queries and k_rows keys, of h query heads and
// g KV heads of D, m = backward_members():
//   forward   lse 4*h*q_rows, o 4*h*q_rows*D
//   backward  lse and delta 8*g*m*q_rows, o 2*g*m*q_rows*D, dq 4*g*m*q_rows*D and as much again on
//             sm_80, dk and dv 8*g*m*D for each key of a piece (key_pieces.h)
Bytes attention_workspace_bytes(AttentionDirection direction, std::int64_t q_rows,
                                std::int64_t k_rows, std::int64_t heads, std::int64_t kv_heads,
                                std::int64_t head_dim);

}  // namespace fpdt
