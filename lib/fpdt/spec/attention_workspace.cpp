// Slices of a workspace, and the limits of cuDNN.
#include "fpdt/spec/attention_workspace.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "fpdt/base/math.h"

namespace fpdt {
namespace {

constexpr std::int64_t kSlice = 256;            // where each part begins
constexpr std::int64_t kEngineBytes = 1 << 16;  // 256 are known
constexpr std::int64_t kLaunchRows = 1 << 19;
// Backward computes larger heads on some GPUs only.
constexpr std::array<std::int64_t, 3> kHeadSizes{64, 96, 128};
constexpr std::int64_t kElementsMost = (std::int64_t{1} << 31) - 1;  // of one operand

std::int64_t slice(std::int64_t bytes) { return round_up(bytes, kSlice); }

}  // namespace

std::int64_t backward_members(std::int64_t q_rows, std::int64_t heads, std::int64_t kv_heads) {
  const std::int64_t group = div_exact(heads, kv_heads);
  const std::int64_t rows = mul(kv_heads, std::max(kBackwardPieceKeys, q_rows));
  std::int64_t members = std::clamp<std::int64_t>(kLaunchRows / rows, 1, group);
  while (group % members != 0) --members;
  return members;
}

Bytes attention_workspace_bytes(AttentionDirection direction, std::int64_t q_rows,
                                std::int64_t k_rows, std::int64_t heads, std::int64_t kv_heads,
                                std::int64_t head_dim) {
  if (direction == AttentionDirection::forward) {
    const std::int64_t rows = mul(heads, q_rows);
    return Bytes{kEngineBytes + slice(4 * rows) + slice(mul(4 * rows, head_dim))};
  }
  const std::int64_t together = kv_heads * backward_members(q_rows, heads, kv_heads);
  const std::int64_t rows = mul(together, q_rows);
  const std::int64_t elements = mul(rows, head_dim);
  const std::int64_t piece = std::min(k_rows, std::max(kBackwardPieceKeys, q_rows));
  const std::int64_t keys = mul(mul(together, piece), head_dim);
  return Bytes{kEngineBytes + 2 * slice(4 * rows) + slice(2 * elements) + 2 * slice(4 * elements) +
               slice(8 * keys)};
}

std::string why_own_attention(const Problem& problem, const Strategy& strategy) {
  if (problem.cluster.attention != AttentionKernels::cudnn) return "";
  if (problem.documents) return "cuDNN's know no documents";
  if (strategy.storage != Storage::bf16) return "cuDNN's take no f32";
  const std::int64_t size = problem.model.head_dim;
  if (std::find(kHeadSizes.begin(), kHeadSizes.end(), size) == kHeadSizes.end()) {
    return fmt::format("cuDNN's take heads of 64, 96 or 128, not of {}", size);
  }
  const Geometry shape = geometry(problem, strategy);
  const std::int64_t longest = longest_fused_chunk(problem, shape.sequence_parallel);
  if (shape.chunk_rows > longest) {
    return fmt::format("cuDNN's take chunks of at most {} tokens here, not of {}", longest,
                       shape.chunk_rows);
  }
  return "";
}

bool fused_attention(const Problem& problem, const Strategy& strategy) {
  return problem.cluster.attention == AttentionKernels::cudnn &&
         why_own_attention(problem, strategy).empty();
}

std::int64_t longest_fused_chunk(const Problem& problem, std::int64_t sequence_parallel) {
  const ModelSpec& model = problem.model;
  const std::int64_t heads = std::max<std::int64_t>(1, model.heads / sequence_parallel);
  const std::int64_t kv_heads = std::max<std::int64_t>(1, model.kv_heads / sequence_parallel);
  const std::int64_t width = std::max(heads, 2 * kv_heads) * model.head_dim;
  const std::int64_t unit = sequence_parallel * problem.cluster.row_multiple;
  return kElementsMost / width / unit * unit;
}

}  // namespace fpdt
