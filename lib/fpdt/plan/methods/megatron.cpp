// Megatron's sequence parallelism: the ranks of a sequence share each product, and the rows between
// products.
#include "fpdt/base/math.h"
#include "fpdt/plan/fit.h"
#include "fpdt/plan/methods/method.h"

namespace fpdt {
namespace {

bool holds_megatron(const Problem& problem, const Strategy& strategy) {
  const Geometry shape = geometry(problem, strategy);
  return strategy.mesh.tensor == shape.sequence_parallel && shape.chunks == 1;
}

// What attention uses is where forward left it.
Strategy entered_megatron(const Problem& problem, Strategy strategy) {
  return method_named("ulysses")->entered(problem, std::move(strategy));
}

// With activation checkpointing and its offload, as Ulysses beside it: a layer's input goes to the
// host, and forward is repeated in backward. The rows of the whole sequence are gathered before
// each product.
Strategy published_megatron(const Problem& problem, std::int64_t batch) {
  Strategy strategy = over_most_products(problem, batch);
  const std::int64_t unit = problem.ranks() / strategy.mesh.replicas * problem.cluster.row_multiple;
  strategy.tiles.chunk_tokens = round_up(problem.seq_len, unit);
  strategy.copies.overlap_all_to_all = false;
  LayerClass& layers = strategy.layer_classes.front();
  layers.keep.fill(1);
  layers.keep[static_cast<std::size_t>(TensorClass::layer_input)] = 0;
  return canonical(problem, strategy);
}

// Its loss holds 10 bytes a logit at once (the product in 16 bits; in 32 bits its copy, and the
// exponentials), where a schedule holds 6.
constexpr Waste kMegatronWaste{
    .logit_bytes = 4, .pageable_copies = kPageableCopies, .host_seconds = kHostSeconds};

}  // namespace

extern const Method kMegatron;
const Method kMegatron{
    .name = "megatron",
    .title = "Megatron-SP",
    .source = "Korthikanti et al., arXiv 2205.05198",
    .sharing = Sharing::products,
    .holds = holds_megatron,
    .entered = entered_megatron,
    .published = published_megatron,
    .waste = kMegatronWaste,
};

}  // namespace fpdt
