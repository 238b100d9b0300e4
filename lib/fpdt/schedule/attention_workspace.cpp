// Computes the sizes of a workspace's parts.
#include "fpdt/schedule/attention_workspace.h"

#include <algorithm>

#include "fpdt/base/math.h"
#include "fpdt/schedule/key_pieces.h"

namespace fpdt {
namespace {

constexpr std::int64_t kSlice = 256;            // alignment of each part
constexpr std::int64_t kEngineBytes = 1 << 16;  // cuDNN itself is known to ask for 256
constexpr std::int64_t kLaunchRows = 1 << 19;

std::int64_t slice(std::int64_t bytes) { return round_up(bytes, kSlice); }

}  // namespace

std::int64_t backward_members(std::int64_t q_rows, std::int64_t heads, std::int64_t kv_heads) {
  const std::int64_t group = div_exact(heads, kv_heads);
  const std::int64_t rows = mul(kv_heads, std::max(kBackwardPieceMost, q_rows));
  std::int64_t members = std::clamp<std::int64_t>(kLaunchRows / rows, 1, group);
  while (group % members != 0) --members;
  return members;
}

Bytes attention_workspace_bytes(AttentionDirection direction, std::int64_t q_rows,
                                std::int64_t k_rows, std::int64_t heads, std::int64_t kv_heads,
                                std::int64_t head_dim) {
  if (direction == AttentionDirection::forward) {
    const std::int64_t rows = mul(heads, q_rows);
    return Bytes{kEngineBytes + slice(4 * rows) + slice(mul(2 * rows, head_dim))};
  }
  const std::int64_t together = kv_heads * backward_members(q_rows, heads, kv_heads);
  const std::int64_t rows = mul(together, q_rows);
  const std::int64_t elements = mul(rows, head_dim);
  const std::int64_t piece = std::min(k_rows, std::max(kBackwardPieceMost, q_rows));
  const std::int64_t keys = mul(mul(together, piece), head_dim);
  return Bytes{kEngineBytes + 2 * slice(4 * rows) + slice(2 * elements) + 2 * slice(4 * elements) +
               slice(4 * keys)};
}

}  // namespace fpdt
