// DeepSpeed Ulysses: the sequence in one chunk, with an all-to-all before and after attention.
#include <algorithm>
#include <initializer_list>

#include "fpdt/plan/fit.h"
#include "fpdt/plan/methods/method.h"

namespace fpdt {
namespace {

// Whether attention finds and leaves all of its tensors on the device. What layers store for
// backward may be on the host, as checkpoints are.
bool kept(const LayerClass& layers, BackwardOrder order) {
  const auto all = [&](std::initializer_list<TensorClass> tensors) {
    return std::all_of(tensors.begin(), tensors.end(),
                       [&](TensorClass tensor) { return layers.kept(tensor) == 1; });
  };
  using enum TensorClass;
  if (layers.recompute != Recompute::keep_all && !all({q, kv})) return false;
  if (layers.recompute == Recompute::from_input && !all({attention_output, lse})) return false;
  return order == BackwardOrder::q_outer ? all({dkv}) : all({dq, dout});
}

bool holds_ulysses(const Problem& problem, const Strategy& strategy) {
  return strategy.mesh.ring == 1 && strategy.mesh.tensor == 1 &&
         geometry(problem, strategy).chunks == 1 &&
         std::all_of(
             strategy.layer_classes.begin(), strategy.layer_classes.end(),
             [&](const LayerClass& layers) { return kept(layers, strategy.tiles.backward_order); });
}

Strategy entered_ulysses(const Problem& problem, Strategy strategy) {
  using enum TensorClass;
  for (const TensorClass tensor : {q, kv, attention_output, lse, dq, dkv, dout}) {
    strategy = with_kept(strategy, tensor, 1);
  }
  return canonical(problem, strategy);
}

// Products and the loss take all rows of the rank at once.
Strategy published_ulysses(const Problem& problem, std::int64_t batch) {
  return checkpointed(problem, over_most_ranks(problem, batch));
}

// Megatron-DeepSpeed's loss holds 14 bytes a logit at once (the product in 16 bits; in 32 bits its
// copy, the softmax and the logarithm), where a schedule holds 6.
constexpr Waste kUlyssesWaste{
    .logit_bytes = 8, .pageable_copies = kPageableCopies, .host_seconds = kHostSeconds};

}  // namespace

extern const Method kUlysses;
const Method kUlysses{
    .name = "ulysses",
    .title = "Ulysses",
    .source = "Jacobs et al., arXiv 2309.14509",
    .holds = holds_ulysses,
    .entered = entered_ulysses,
    .published = published_ulysses,
    .waste = kUlyssesWaste,
};

}  // namespace fpdt
