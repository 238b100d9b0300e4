// The ratios of that implementation, in rows.
#include "fpdt/plan/published.h"

#include <algorithm>

#include "fpdt/base/math.h"
#include "fpdt/plan/fit.h"

namespace fpdt {

Strategy published_fpdt(const Problem& problem, std::int64_t batch) {
  constexpr std::int64_t kChunk = 65536;
  constexpr std::int64_t kFeedForwardTiles = 2;
  constexpr std::int64_t kLossTiles = 32;
  Strategy strategy;
  const std::vector<std::int64_t> degrees = data_parallel_degrees(problem);
  if (!degrees.empty()) strategy.mesh.replicas = degrees.front();
  strategy.micro_batches = std::max<std::int64_t>(1, batch / strategy.mesh.replicas);
  const std::int64_t unit = problem.ranks() / strategy.mesh.replicas * problem.cluster.row_multiple;
  strategy.tiles.chunk_tokens = round_up(std::min(kChunk, problem.seq_len), unit);
  const std::int64_t rows = geometry(problem, strategy).local_rows(0);
  strategy.tiles.ffn_rows = div_ceil(rows, kFeedForwardTiles);
  strategy.tiles.loss_rows = div_ceil(rows, kLossTiles);
  strategy.tiles.backward_order = BackwardOrder::kv_outer;
  strategy.copies.prefetch_depth = 1;
  strategy.copies.duplex = false;
  strategy.copies.overlap_all_to_all = false;
  return tidied(problem, strategy);
}

}  // namespace fpdt
