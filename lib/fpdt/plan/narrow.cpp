// Tries rows of a chunk until the narrow problem is sound.
#include "fpdt/plan/narrow.h"

#include <algorithm>

#include "fpdt/base/error.h"
#include "fpdt/base/math.h"
#include "fpdt/spec/layer_places.h"

namespace fpdt {
namespace {

constexpr std::int64_t kWords = 32;
constexpr std::int64_t kOptimizerTile = 1024;  // the smallest that is sound

// Tiles of `all` rows, in as many pieces as `whole` had, if the rows allow it.
std::int64_t tile(std::int64_t rows, std::int64_t whole, std::int64_t all) {
  if (rows == 0 || rows >= whole) return 0;
  return div_ceil(all, std::min(all, div_ceil(whole, rows)));
}

void narrow_model(ModelSpec& model, std::int64_t tokens) {
  model.name += "-narrow";
  // At least a quarter of a head rotates, in pairs.
  model.head_dim = 8;
  model.hidden = 16;
  model.feed_forward = 16;
  model.vocabulary = kWords;
  if (model.shared_feed_forward > 0) model.shared_feed_forward = 8;
  for (LayerKind& kind : model.kinds) {
    if (kind.dense_feed_forward > 0) kind.dense_feed_forward = 32;
    RotarySpec& rotary = kind.rotary;
    if (rotary.scaling != RotaryScaling::longrope) continue;
    std::vector<double> factors = rotary.pair_factors(tokens);
    factors.resize(index(model.rotary_dim(kind) / 2), 1);
    rotary.short_factors = rotary.long_factors = factors;  // however short the sequence is
  }
}

}  // namespace

std::pair<Problem, Strategy> narrowed(const Problem& problem, const Strategy& strategy) {
  const Geometry shape = geometry(problem, strategy);
  Problem small = problem;
  Strategy same = strategy;
  narrow_model(small.model, problem.seq_len);
  shorten_layers(same, small.model);
  small.cluster.attention = AttentionKernels::own;
  small.cluster.row_multiple = 1;
  same.micro_batches = std::min<std::int64_t>(2, strategy.micro_batches);
  same.copies.optimizer_tile = kOptimizerTile;
  const std::int64_t ranks = shape.sequence_parallel;
  std::vector<Diagnostic> findings;
  for (const std::int64_t rows : {2, 4, 8, 16}) {
    same.tiles.chunk_tokens = ranks * rows;
    const bool ragged = shape.last_chunk_rows < shape.chunk_rows;
    small.seq_len = ranks * ((shape.chunks - 1) * rows + (ragged ? rows / 2 : rows));
    if (shape.padded_tokens > problem.seq_len) small.seq_len -= 1;
    if (small.model.learned_positions > 0) small.model.learned_positions = small.seq_len;
    for (std::size_t k = 0; k < small.model.kinds.size(); ++k) {
      const std::int64_t window = problem.model.kinds[k].window_in(problem.seq_len);
      // The same share of a chunk, and as many chunks.
      small.model.kinds[k].window =
          window == 0 ? 0
                      : 1 + div_ceil(mul(window - 1, same.tiles.chunk_tokens), shape.chunk_rows);
    }
    same.tiles.ffn_rows =
        tile(strategy.tiles.ffn_rows, shape.product_rows(0), rows * shape.tensor_ranks);
    same.tiles.loss_rows = tile(strategy.tiles.loss_rows, shape.local_rows(0), rows);
    same.tiles.loss_vocabulary =
        tile(strategy.tiles.loss_vocabulary, problem.model.vocabulary, kWords);
    findings = check(small, same);
    if (findings.empty()) return {small, same};
  }
  throw InputError("no narrow problem has this strategy:\n" + format_diagnostics(findings));
}

}  // namespace fpdt
