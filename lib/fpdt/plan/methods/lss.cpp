// The Long Short-Sequence Transformer: each rank has a run of the sequence, and gathers the keys
// and values of all others once a layer.
#include "fpdt/base/math.h"
#include "fpdt/plan/fit.h"
#include "fpdt/plan/methods/method.h"

namespace fpdt {
namespace {

// With one chunk, the interleaved layout is the contiguous one of the paper.
bool holds_lss(const Problem& problem, const Strategy& strategy) {
  const Geometry shape = geometry(problem, strategy);
  return shape.hops == 1 && shape.ring == shape.sequence_parallel && shape.chunks == 1;
}

Strategy entered_lss(const Problem&, Strategy strategy) {
  strategy.keys = Keys::gathered;
  return strategy;
}

// Ranks hold whole parameters, gradients and states, and average gradients once a step. Layers
// store all that backward reads, on the device: the paper names no checkpoints and no host memory.
// Its code is not public. So it is an assumption that keys gathered in forward are kept for
// backward, which then sums their gradients and gathers nothing.
Strategy published_lss(const Problem& problem, std::int64_t batch) {
  Strategy strategy = over_all_ranks(problem, batch);
  const std::int64_t unit = problem.ranks() * problem.cluster.row_multiple;
  strategy.tiles.chunk_tokens = round_up(problem.seq_len, unit);
  strategy.zero = 0;
  strategy.copies.overlap_all_to_all = false;
  LayerClass& layers = strategy.layer_classes.front();
  // Experts make their rows again.
  layers.recompute = problem.model.has_experts() ? Recompute::keep_attention : Recompute::keep_all;
  layers.keep.fill(1);
  return canonical(problem, strategy);
}

// Without a fused kernel, attention stores 5 bytes of each query, key and head: in 16 bits the
// softmax and its dropout, and a mask of the dropout (Korthikanti et al., arXiv 2205.05198). That
// the code has no fused kernel and no other waste are assumptions; the paper names none.
constexpr Waste kLssWaste{.score_bytes = 5};

}  // namespace

extern const Method kLss;
const Method kLss{
    .name = "lss",
    .title = "LSS",
    .source = "Wang et al., Ultra-Long Sequence Distributed Transformer, arXiv 2311.02382",
    .sharing = Sharing::queries,
    .holds = holds_lss,
    .entered = entered_lss,
    .published = published_lss,
    .waste = kLssWaste,
};

}  // namespace fpdt
