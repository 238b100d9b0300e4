// Arctic Long Sequence Training: Ulysses with tiles of the feed-forward and the loss, and layer
// inputs on the host.
#include <algorithm>

#include "fpdt/base/math.h"
#include "fpdt/plan/fit.h"
#include "fpdt/plan/methods/method.h"

namespace fpdt {
namespace {

bool holds(const Problem& problem, const Strategy& strategy) {
  const bool tiled = strategy.tiles.ffn_rows > 0 && strategy.tiles.loss_rows > 0;
  return tiled && strategy.layer_classes.front().kept(TensorClass::layer_input) == 0 &&
         method_named("ulysses")->holds(problem, strategy);
}

// TiledMLP has as many rows as the hidden size; a tile of the loss has 1 GiB of logits in f32.
void tile(const Problem& problem, Strategy& strategy) {
  constexpr std::int64_t kLogits = std::int64_t{1} << 28;
  const std::int64_t rows = geometry(problem, strategy).local_rows(0);
  strategy.tiles.ffn_rows = std::min(problem.model.hidden, rows);
  strategy.tiles.loss_rows =
      std::min(std::max<std::int64_t>(1, kLogits / problem.model.vocabulary), rows);
}

Strategy entered(const Problem& problem, Strategy strategy) {
  strategy = method_named("ulysses")->entered(problem, strategy);
  strategy = with_kept(strategy, TensorClass::layer_input, 0);
  if (strategy.tiles.ffn_rows == 0 || strategy.tiles.loss_rows == 0) tile(problem, strategy);
  return tidied(problem, strategy);
}

// The recipes also keep the optimizer on the host.
Strategy published(const Problem& problem, std::int64_t batch) {
  Strategy strategy = method_named("ulysses")->published(problem, batch);
  strategy.offload_states(true);
  tile(problem, strategy);
  return tidied(problem, strategy);
}

// The tiled feed-forward holds its input, output and gradient whole, and an all-to-all the packed,
// received and unpacked copy of a tensor. Layer inputs went to pageable memory at first.
constexpr Waste kWaste{.hidden_tensors = 6, .pageable_copies = kPageableCopies};

}  // namespace

extern const Method kAlst;
const Method kAlst{
    "alst", "ALST",  "Arctic Long Sequence Training, arXiv 2506.13996, and its recipes",
    holds,  entered, published,
    kWaste};

}  // namespace fpdt
