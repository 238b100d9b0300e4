// Unified sequence parallelism: all-to-alls within groups of ranks, and rings of keys across them.
#include "fpdt/base/math.h"
#include "fpdt/plan/fit.h"
#include "fpdt/plan/methods/method.h"

namespace fpdt {
namespace {

bool holds_usp(const Problem& problem, const Strategy& strategy) {
  const Geometry shape = geometry(problem, strategy);
  return shape.hops > 1 && shape.head_ranks() > 1 && shape.tensor_ranks == 1 &&
         (shape.chunks == 1 || shape.zigzag);
}

Strategy entered_usp(const Problem& problem, Strategy strategy) {
  strategy.keys = Keys::ring;
  strategy.layout = Layout::zigzag;
  return canonical(problem, strategy);
}

// The most ranks of a node that have whole KV heads exchange heads; rings go across them. Each
// rank has two runs of the sequence, and all that attention uses on the device. Forward is repeated
// from a layer's input.
Strategy published_usp(const Problem& problem, std::int64_t batch) {
  Strategy strategy;
  strategy.micro_batches = batch;
  const std::int64_t ranks = problem.ranks();
  std::int64_t heads = 1;
  for (std::int64_t n = 2; n <= problem.cluster.devices_per_node && n < ranks; ++n) {
    const bool whole = problem.model.heads % n == 0 && problem.model.kv_heads % n == 0;
    if (ranks % n == 0 && whole) heads = n;
  }
  strategy = with_ring(strategy, ranks / heads);
  const std::int64_t unit = ranks * problem.cluster.row_multiple;
  strategy.tiles.chunk_tokens = round_up(div_ceil(problem.seq_len, 2), unit);
  strategy.layer_classes.front().keep.fill(1);
  return entered_usp(problem, strategy);
}

}  // namespace

extern const Method kUsp;
const Method kUsp{
    .name = "usp",
    .title = "USP",
    .source = "Fang and Zhao, arXiv 2405.07719",
    .sharing = Sharing::grid,
    .holds = holds_usp,
    .entered = entered_usp,
    .published = published_usp,
    .waste = {},
};

}  // namespace fpdt
