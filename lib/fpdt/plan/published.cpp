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
  if (!degrees.empty()) strategy.data_parallel = degrees.front();
  strategy.micro_batches = std::max<std::int64_t>(1, batch / strategy.data_parallel);
  const std::int64_t unit = problem.ranks() / strategy.data_parallel * problem.cluster.row_multiple;
  FpdtStrategy& fpdt = strategy.fpdt;
  fpdt.chunk_tokens = round_up(std::min(kChunk, problem.seq_len), unit);
  const std::int64_t rows = geometry(problem, strategy).local_rows(0);
  fpdt.ffn_tile_rows = div_ceil(rows, kFeedForwardTiles);
  fpdt.loss_tile_rows = div_ceil(rows, kLossTiles);
  fpdt.backward_order = BackwardOrder::kv_outer;
  fpdt.prefetch_depth = 1;
  fpdt.duplex = false;
  fpdt.overlap_all_to_all = false;
  return tidied(problem, strategy);
}

}  // namespace fpdt
