// Arctic Long Sequence Training: Ulysses with tiles of the feed-forward and the loss, and layer
// inputs on the host.
#include <algorithm>

#include "fpdt/plan/fit.h"
#include "fpdt/plan/methods/method.h"

namespace fpdt {
namespace {

// TiledMLP has as many rows as the hidden size; a tile of the loss has 1 GiB of logits in f32.
Strategy tiled(const Problem& problem, Strategy strategy) {
  constexpr std::int64_t kLogits = std::int64_t{1} << 28;
  strategy.tiles.ffn_rows = std::max(problem.model.hidden, least_ffn_rows(problem, strategy));
  strategy.tiles.loss_rows =
      std::max(kLogits / problem.model.vocabulary, least_loss_rows(problem, strategy));
  return canonical(problem, strategy);  // a tile of all rows is none
}

bool holds_alst(const Problem& problem, const Strategy& strategy) {
  const Tiles usual = tiled(problem, strategy).tiles;
  const bool has_tiles = (strategy.tiles.ffn_rows > 0 || usual.ffn_rows == 0) &&
                         (strategy.tiles.loss_rows > 0 || usual.loss_rows == 0);
  return has_tiles && strategy.layer_classes.front().kept(TensorClass::layer_input) == 0 &&
         method_named("ulysses")->holds(problem, strategy);
}

Strategy entered_alst(const Problem& problem, Strategy strategy) {
  strategy = method_named("ulysses")->entered(problem, strategy);
  strategy = with_kept(strategy, TensorClass::layer_input, 0);
  const bool whole = strategy.tiles.ffn_rows == 0 || strategy.tiles.loss_rows == 0;
  return whole ? tiled(problem, strategy) : canonical(problem, strategy);
}

// The recipes also keep the optimizer on the host.
Strategy published_alst(const Problem& problem, std::int64_t batch) {
  Strategy strategy = method_named("ulysses")->published(problem, batch);
  strategy.offload_states(true);
  return tiled(problem, strategy);
}

// The tiled feed-forward holds its input, output and gradient whole, and an all-to-all the packed,
// received and unpacked copy of a tensor. Layer inputs went to pageable memory at first.
constexpr Waste kAlstWaste{.hidden_tensors = 6, .pageable_copies = kPageableCopies};

}  // namespace

extern const Method kAlst;
const Method kAlst{
    .name = "alst",
    .title = "ALST",
    .source = "Arctic Long Sequence Training, arXiv 2506.13996, and its recipes",
    .holds = holds_alst,
    .entered = entered_alst,
    .published = published_alst,
    .waste = kAlstWaste,
};

}  // namespace fpdt
