// The attention tiles that our own kernels can compute. Other tiles need a library, or cannot run.
#pragma once

#include <cmath>
#include <cstdint>

#include "fpdt/schedule/op.h"

namespace fpdt::cuda {

inline constexpr std::int64_t kAttentionSizeMost = 256;      // D
inline constexpr std::int64_t kAttentionRowsMost = 1 << 26;  // of queries, and of keys
inline constexpr std::int64_t kAttentionHeadsMost = 1 << 10;
// Shared memory that a block may take: the limit of sm_80; sm_90 has more. GPUs with less (sm_86,
// sm_89 and sm_120) run smaller blocks of large heads.
inline constexpr std::int64_t kAttentionSharedMost = 163 << 10;
inline constexpr std::int64_t kAttentionSharedLeast = 99 << 10;

// For AttentionForward and AttentionBackward. `q` is the type of q, kv and dout. The kernels copy
// whole chunks of 16 bytes, so D must be a multiple of 8, and operands must begin at multiples of
// 16 bytes, as they do in an arena.
template <class Op>
[[nodiscard]] bool serves(const Op& op, Dtype q) {
  return q == Dtype::bf16 && op.head_dim > 0 && op.head_dim <= kAttentionSizeMost &&
         op.head_dim % 8 == 0 && op.kv_heads > 0 && op.heads > 0 && op.heads % op.kv_heads == 0 &&
         op.heads <= kAttentionHeadsMost && op.q_rows > 0 && op.q_rows <= kAttentionRowsMost &&
         op.k_rows > 0 && op.k_rows <= kAttentionRowsMost && std::isfinite(op.scale) &&
         op.scale > 0;
}

}  // namespace fpdt::cuda
