// Megatron's sequence parallelism: the ranks of a sequence share each product, and the rows between
// products.
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

// As Ulysses beside it. The rows of the whole sequence are gathered before each product.
Strategy published_megatron(const Problem& problem, std::int64_t batch) {
  return checkpointed(problem, over_most_products(problem, batch));
}

// Its loss holds 10 bytes a logit at once (the product in 16 bits; in 32 bits its copy, and the
// exponentials), where a schedule holds 6. A layer without recomputation stores 34 bytes for each
// token and hidden element (table 2).
constexpr Waste kMegatronWaste{.logit_bytes = 4,
                               .keeps_what_can_be_made = true,
                               .pageable_copies = kPageableCopies,
                               .host_seconds = kHostSeconds};

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
