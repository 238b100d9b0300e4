// The Fully Pipelined Distributed Transformer: Ulysses in chunks of the sequence.
#include <algorithm>

#include "fpdt/base/math.h"
#include "fpdt/plan/fit.h"
#include "fpdt/plan/methods/method.h"

namespace fpdt {
namespace {

bool holds_fpdt(const Problem& problem, const Strategy& strategy) {
  return strategy.mesh.ring == 1 && strategy.mesh.tensor == 1 &&
         geometry(problem, strategy).chunks > 1;
}

Strategy entered_fpdt(const Problem&, Strategy strategy) { return strategy; }

// Chunks have 64K tokens over all ranks (the default of its flag), or the sequence if it is
// shorter. Queries, keys, values, outputs and their gradients of all chunks are on the host. One
// layer's input is stored and its forward repeated in backward. Norms, the output projection and
// residuals take all rows of a rank, and the gradient between layers stays on the device. Backward
// goes by KV chunks with the query side streamed. The feed-forward runs in two tiles of a chunk
// (C / 2P rows), the loss in 32 (C / 32P rows). Transfers run one ahead; one stream carries both
// directions of the copies; all-to-alls wait for the attention before them.
Strategy published_fpdt(const Problem& problem, std::int64_t batch) {
  constexpr std::int64_t kChunk = 65536;
  constexpr std::int64_t kFeedForwardTiles = 2;
  constexpr std::int64_t kLossTiles = 32;
  Strategy strategy = over_most_ranks(problem, batch);
  strategy.extent = Extent::whole;
  const std::int64_t unit = problem.ranks() / strategy.mesh.replicas * problem.cluster.row_multiple;
  strategy.tiles.chunk_tokens = round_up(std::min(kChunk, problem.seq_len), unit);
  const std::int64_t rows = geometry(problem, strategy).local_rows(0);
  strategy.tiles.ffn_rows = div_ceil(rows, kFeedForwardTiles);
  strategy.tiles.loss_rows = div_ceil(rows, kLossTiles);
  strategy.tiles.backward_order = BackwardOrder::kv_outer;
  strategy.copies.prefetch_depth = 1;
  strategy.copies.duplex = false;
  strategy.copies.overlap_all_to_all = false;
  strategy = with_kept(strategy, TensorClass::layer_gradient, 1);
  return canonical(problem, strategy);
}

// Tensors of all rows of a rank that the code holds and the schedule does not need: the output of
// the forward that backward repeats; the gradient of that output, through the backward of
// attention; and the gradient of the norm's output as a list of chunks beside their concatenation.
// With one more, the published 2M of Llama 3 8B on four GPUs would not fit. Every rank holds the
// cosines and sines of the whole sequence, in f32 and in bf16. Its allocator rounds pinned blocks
// up to powers of two.
constexpr Waste kFpdtWaste{.hidden_tensors = 3,
                           .rotary_bytes = 12,
                           .pinned_powers_of_two = true,
                           .pageable_copies = kPageableCopies,
                           .host_seconds = kHostSeconds};

}  // namespace

extern const Method kFpdt;
const Method kFpdt{
    .name = "fpdt",
    .title = "FPDT",
    .source = "Yao et al., arXiv 2408.16978, and DeepSpeed's fpdt_layer.py",
    .holds = holds_fpdt,
    .entered = entered_fpdt,
    .published = published_fpdt,
    .waste = kFpdtWaste,
};

}  // namespace fpdt
