// Ring attention: each rank has a run of the sequence, and keys go around all ranks.
#include <algorithm>

#include "fpdt/base/math.h"
#include "fpdt/plan/fit.h"
#include "fpdt/plan/methods/method.h"

namespace fpdt {
namespace {

bool holds_ring(const Problem& problem, const Strategy& strategy) {
  const Geometry shape = geometry(problem, strategy);
  return shape.hops == shape.sequence_parallel && shape.chunks == 1;
}

Strategy entered_ring(const Problem& problem, Strategy strategy) {
  strategy.keys = Keys::ring;
  strategy.layout = Layout::interleaved;
  return canonical(problem, strategy);
}

bool holds_zigzag(const Problem& problem, const Strategy& strategy) {
  const Geometry shape = geometry(problem, strategy);
  const bool alone = shape.sequence_parallel == 1;  // every order of ranks is the same
  return shape.hops == shape.sequence_parallel && (alone ? shape.chunks > 1 : shape.zigzag);
}

Strategy entered_zigzag(const Problem& problem, Strategy strategy) {
  strategy.keys = Keys::ring;
  strategy.layout = Layout::zigzag;
  return canonical(problem, strategy);
}

// The strategy over all ranks, with `runs` runs a rank. All that attention uses is on the device.
// Forward is repeated from a layer's input. Exchanges run beside the tiles.
Strategy around(const Problem& problem, std::int64_t batch, std::int64_t runs) {
  Strategy strategy = over_all_ranks(problem, batch);
  const std::int64_t unit = problem.ranks() * problem.cluster.row_multiple;
  strategy.tiles.chunk_tokens = round_up(div_ceil(problem.seq_len, runs), unit);
  strategy.keys = Keys::ring;
  strategy.layer_classes.front().keep.fill(1);
  return strategy;
}

// The paper repeats each layer from its input, which stays on the device, and shards states as
// FSDP does. It goes through the feed-forward in blocks as well; their size is not stated, so here
// they have as many rows as the hidden size.
Strategy published_ring(const Problem& problem, std::int64_t batch) {
  Strategy strategy = around(problem, batch, 1);
  strategy.tiles.ffn_rows = std::max(problem.model.hidden, least_ffn_rows(problem, strategy));
  return canonical(problem, strategy);
}

// As others ran it for longest sequences: with layer inputs on the host, and tiles of the
// feed-forward and the loss. Gradients of keys go around in f32.
Strategy published_zigzag(const Problem& problem, std::int64_t batch) {
  constexpr std::int64_t kRuns = 2;
  Strategy strategy = around(problem, batch, kRuns);
  strategy.layout = Layout::zigzag;
  strategy = with_kept(strategy, TensorClass::layer_input, 0);
  const Tiles tiles = method_named("alst")->published(problem, batch).tiles;
  strategy.tiles.ffn_rows = tiles.ffn_rows;
  strategy.tiles.loss_rows = tiles.loss_rows;
  return canonical(problem, strategy);
}

// The tiled feed-forward holds its input, output and gradient whole, as that of ALST does.
constexpr Waste kZigzagWaste{.hidden_tensors = 3};

}  // namespace

extern const Method kRing, kZigzag;
const Method kRing{
    .name = "ring",
    .title = "Ring attention",
    .source = "Liu et al., arXiv 2310.01889",
    .sharing = Sharing::queries,
    .holds = holds_ring,
    .entered = entered_ring,
    .published = published_ring,
    .waste = {},
};
const Method kZigzag{
    .name = "zigzag",
    .title = "Zigzag ring",
    .source =
        "ring-flash-attention, zigzag_ring_flash_attn, with the checkpoints and tiles of ALST",
    .sharing = Sharing::queries,
    .holds = holds_zigzag,
    .entered = entered_zigzag,
    .published = published_zigzag,
    .waste = kZigzagWaste,
};

}  // namespace fpdt
