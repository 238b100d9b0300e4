// Context parallelism with gathered keys, as Llama 3 was trained: each rank has queries of all
// heads everywhere in the sequence, and gathers the keys and values of all ranks.
#include "fpdt/base/math.h"
#include "fpdt/plan/fit.h"
#include "fpdt/plan/methods/method.h"

namespace fpdt {
namespace {

bool holds_allgather_cp(const Problem& problem, const Strategy& strategy) {
  const Geometry shape = geometry(problem, strategy);
  return shape.hops == 1 && shape.ring == shape.sequence_parallel;
}

Strategy entered_allgather_cp(const Problem&, Strategy strategy) {
  strategy.keys = Keys::gathered;
  return strategy;
}

// A rank has a run of each half of the sequence, in opposite orders. Layers repeat forward from
// their input, which stays on the device, and so gather keys once more, as TransformerEngine does.
// Ranks share states and gradients. Each has all parameters, which Llama 3 keeps whole between
// forward and backward. Products and the loss take all rows of a chunk.
Strategy published_allgather_cp(const Problem& problem, std::int64_t batch) {
  Strategy strategy = over_all_ranks(problem, batch);
  const std::int64_t unit = problem.ranks() * problem.cluster.row_multiple;
  constexpr std::int64_t kRuns = 2;
  strategy.tiles.chunk_tokens = round_up(div_ceil(problem.seq_len, kRuns), unit);
  strategy.layout = Layout::zigzag;
  strategy.zero = 2;
  strategy.copies.overlap_all_to_all = false;
  strategy.layer_classes.front().keep.fill(1);
  return canonical(problem, strategy);
}

}  // namespace

extern const Method kAllgatherCp;
const Method kAllgatherCp{
    .name = "allgather-cp",
    .title = "All-gather CP",
    .source =
        "Grattafiori et al., The Llama 3 Herd of Models, arXiv 2407.21783, section 3.3.2, and "
        "TransformerEngine's context parallelism",
    .sharing = Sharing::queries,
    .holds = holds_allgather_cp,
    .entered = entered_allgather_cp,
    .published = published_allgather_cp,
    .waste = {},
};

}  // namespace fpdt
