// Checks the limits of cuDNN.
#include "fpdt/spec/attention_kernels.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "fpdt/base/math.h"

namespace fpdt {
namespace {

constexpr std::array<std::int64_t, 5> kHeadSizes{64, 96, 128, 192, 256};
constexpr std::int64_t kElementsMost = (std::int64_t{1} << 31) - 1;  // of one operand

// If nothing but windows forbids cuDNN.
LibraryTiles tiles_of(const Problem& problem, const Geometry& shape, const LayerKind& kind) {
  const std::int64_t chunks = library_chunks(kind, problem.seq_len, shape.chunk_rows);
  // Ranks that gather keys have fewer queries than keys.
  const bool own_keys = shape.ring == 1 || shape.hops > 1;
  return {chunks, chunks == 0 && problem.cluster.cudnn_windows && own_keys};
}

}  // namespace

std::string why_own_attention(const Problem& problem, const Strategy& strategy) {
  if (problem.cluster.attention != AttentionKernels::cudnn) return "";
  const Geometry shape = geometry(problem, strategy);
  const std::vector<LayerKind>& kinds = problem.model.kinds;
  if (std::none_of(kinds.begin(), kinds.end(),
                   [&](const LayerKind& kind) { return tiles_of(problem, shape, kind).any(); })) {
    return std::string(kNoWindows);
  }
  if (problem.model.attention_cap > 0) return "those of cuDNN compute no soft caps here";
  if (problem.documents) return "those of cuDNN do not support documents";
  if (strategy.storage != Storage::bf16) return "those of cuDNN do not support f32";
  const std::int64_t size = problem.model.head_dim;
  const auto* const end =
      std::upper_bound(kHeadSizes.begin(), kHeadSizes.end(), problem.cluster.largest_cudnn_head);
  if (std::find(kHeadSizes.begin(), end, size) == end) {
    return fmt::format("those of cuDNN support heads of {} or {} here, not {}",
                       fmt::join(kHeadSizes.begin(), end - 1, ", "), *(end - 1), size);
  }
  const std::int64_t longest =
      longest_fused_chunk(problem, shape.sequence_parallel, shape.ring, shape.hops);
  if (shape.chunk_rows > longest) {
    return fmt::format("those of cuDNN support at most {} tokens per chunk here, not {}", longest,
                       shape.chunk_rows);
  }
  return "";
}

bool fused_attention(const Problem& problem, const Strategy& strategy) {
  return problem.cluster.attention == AttentionKernels::cudnn &&
         why_own_attention(problem, strategy).empty();
}

std::vector<LibraryTiles> library_tiles(const Problem& problem, const Strategy& strategy) {
  std::vector<LibraryTiles> tiles(problem.model.kinds.size());
  if (!fused_attention(problem, strategy)) return tiles;
  const Geometry shape = geometry(problem, strategy);
  std::transform(problem.model.kinds.begin(), problem.model.kinds.end(), tiles.begin(),
                 [&](const LayerKind& kind) { return tiles_of(problem, shape, kind); });
  return tiles;
}

std::int64_t longest_fused_chunk(const Problem& problem, std::int64_t sequence_parallel,
                                 std::int64_t ring, std::int64_t hops) {
  const ModelSpec& model = problem.model;
  const std::int64_t head_ranks = sequence_parallel / ring;
  // A tile has the queries of 1/R of the chunk, and all of its keys unless these go around.
  const std::int64_t heads = std::max<std::int64_t>(1, model.heads / head_ranks);
  const std::int64_t kv_heads = std::max<std::int64_t>(1, model.kv_heads / head_ranks);
  const std::int64_t unit = sequence_parallel * problem.cluster.row_multiple;
  const std::int64_t queries = kElementsMost / (heads * model.head_dim) * ring;
  const std::int64_t keys = kElementsMost / (2 * kv_heads * model.head_dim) * hops;
  return std::min(queries, keys) / unit * unit;
}

}  // namespace fpdt
