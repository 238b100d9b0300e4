// DeepSpeed Ulysses: the sequence in one chunk, with an all-to-all before and after attention.
#include <algorithm>

#include "fpdt/base/math.h"
#include "fpdt/plan/fit.h"
#include "fpdt/plan/methods/method.h"

namespace fpdt {
namespace {

bool holds(const Problem& problem, const Strategy& strategy) {
  return geometry(problem, strategy).chunks == 1;
}

// With activation checkpointing and its offload: a layer's input goes to the host, and forward is
// repeated in backward. Products and the loss take all rows of the rank at once.
Strategy published(const Problem& problem, std::int64_t batch) {
  Strategy strategy = over_most_ranks(problem, batch);
  const std::int64_t unit = problem.ranks() / strategy.mesh.replicas * problem.cluster.row_multiple;
  strategy.tiles.chunk_tokens = round_up(problem.seq_len, unit);
  strategy.copies.overlap_all_to_all = false;
  LayerClass& layers = strategy.layer_classes.front();
  layers.keep.fill(1);
  layers.keep[static_cast<std::size_t>(TensorClass::layer_input)] = 0;
  return tidied(problem, strategy);
}

// Megatron-DeepSpeed's loss holds 14 bytes a logit at once (the product in 16 bits; in 32 bits its
// copy, the softmax and the logarithm), where a schedule holds 6.
constexpr Waste kWaste{
    .logit_bytes = 8, .pageable_copies = kPageableCopies, .host_seconds = kHostSeconds};

}  // namespace

extern const Method kUlysses;
const Method kUlysses{"ulysses", "Ulysses", "Jacobs et al., arXiv 2309.14509",
                      holds,     published, kWaste};

}  // namespace fpdt
