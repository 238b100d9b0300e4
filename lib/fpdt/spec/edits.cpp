// Strategies changed in one choice, and the values that a choice may take.
#include "fpdt/spec/edits.h"

#include <algorithm>
#include <cmath>

#include "fpdt/base/math.h"
#include "fpdt/spec/attention_kernels.h"

namespace fpdt {
namespace {

constexpr std::int64_t kChunkTokensMost = std::int64_t{1} << 21;

}  // namespace

double fraction_of(std::int64_t kept, std::int64_t chunks) {
  if (kept <= 0) return 0;
  if (kept >= chunks) return 1;
  constexpr double kDigits = 1e4;  // fine enough for kChunksMost chunks, short in a file
  const auto count = static_cast<double>(chunks);
  double digits = std::ceil(kDigits * static_cast<double>(kept) / count);
  if (static_cast<std::int64_t>(digits / kDigits * count) < kept) ++digits;  // rounded down
  return digits / kDigits;
}

StoredLayers stored_layers(const Problem& problem, const Strategy& strategy) {
  StoredLayers stored;
  std::int64_t rest = problem.model.layers;
  for (const LayerClass& one : strategy.layer_classes) {
    const std::int64_t layers = one.layers > 0 ? one.layers : rest;
    rest -= layers;
    if (one.recompute == Recompute::keep_all) stored.everything += layers;
    if (one.recompute == Recompute::keep_attention) stored.attention += layers;
  }
  return stored;
}

Strategy with_stored(const Problem& problem, Strategy strategy, const StoredLayers& stored) {
  const LayerClass like = strategy.layer_classes.front();
  std::vector<LayerClass>& classes = strategy.layer_classes;
  classes.clear();
  const auto add = [&](std::int64_t layers, Recompute recompute) {
    if (layers <= 0) return;
    classes.push_back(like);
    classes.back().layers = layers;
    classes.back().recompute = recompute;
  };
  add(stored.everything, Recompute::keep_all);
  add(stored.attention, Recompute::keep_attention);
  add(problem.model.layers - stored.everything - stored.attention, Recompute::from_input);
  classes.back().layers = 0;
  return strategy;
}

Strategy with_kept(Strategy strategy, TensorClass tensor, double fraction) {
  for (LayerClass& one : strategy.layer_classes) {
    one.keep[static_cast<std::size_t>(tensor)] = fraction;
  }
  return strategy;
}

std::vector<std::int64_t> chunk_lengths(const Problem& problem, std::int64_t sequence_parallel,
                                        std::int64_t ring, std::int64_t hops) {
  const std::int64_t unit = sequence_parallel * problem.cluster.row_multiple;
  const std::int64_t whole = round_up(problem.seq_len, unit);
  std::vector<std::int64_t> lengths;
  // As many tiles in all hops as without.
  const auto fewer = [&](std::int64_t chunks) {
    return static_cast<std::int64_t>(static_cast<double>(chunks) /
                                     std::sqrt(static_cast<double>(hops)));
  };
  const std::int64_t chunks = std::max<std::int64_t>(2, fewer(kChunksMost));
  const std::int64_t least = std::max(unit, round_up(div_ceil(whole, chunks), unit));
  // Chunks are shorter than 1/64 of the sequence only where that would be over 64K tokens.
  std::int64_t c = 1;
  while (c < least || (fewer(c) < 65536 && c * fewer(64) < whole)) c *= 2;
  const std::int64_t most = std::max(kChunkTokensMost, 2 * least);  // for the longest sequences
  for (; c < whole && c <= most; c *= 2) {
    const std::int64_t length = round_up(c, unit);
    if (length < whole && (lengths.empty() || length > lengths.back())) lengths.push_back(length);
  }
  lengths.push_back(whole);
  // The rates are cuDNN's, so chunks that it does not accept would only seem fast.
  Strategy shortest;
  shortest.mesh.replicas = problem.ranks() / sequence_parallel;
  shortest.tiles.chunk_tokens = least;
  shortest = with_ring(shortest, ring);
  if (!fused_attention(problem, shortest)) return lengths;
  const std::int64_t longest = longest_fused_chunk(problem, sequence_parallel, ring, hops);
  while (lengths.size() > 1 && lengths.back() > longest) lengths.pop_back();
  return lengths;
}

std::vector<std::int64_t> data_parallel_degrees(const Problem& problem) {
  std::vector<std::int64_t> degrees;
  const std::int64_t ranks = problem.ranks();
  for (std::int64_t degree = 1; degree <= ranks; ++degree) {
    if (ranks % degree != 0) continue;
    if (divides_heads(problem.model, ranks / degree)) degrees.push_back(degree);
  }
  return degrees;
}

std::vector<std::int64_t> checkpoint_intervals(const Problem& problem) {
  std::vector<std::int64_t> intervals;
  for (std::int64_t k = 1; k <= problem.model.layers; ++k) {
    if (problem.model.layers % k == 0) intervals.push_back(k);
  }
  return intervals;
}

Strategy with_ring(Strategy strategy, std::int64_t ring) {
  strategy.mesh.ring = ring;
  if (ring == 1) strategy.keys = Keys::resident;
  if (ring > 1 && strategy.keys == Keys::resident) strategy.keys = Keys::gathered;
  return strategy;
}

std::vector<std::int64_t> rings(const Problem& problem, std::int64_t sequence_parallel) {
  std::vector<std::int64_t> found;
  for (std::int64_t ring = 1; ring <= sequence_parallel; ++ring) {
    if (sequence_parallel % ring != 0) continue;
    if (divides_heads(problem.model, sequence_parallel / ring)) found.push_back(ring);
  }
  return found;  // one rank has all heads, so the largest ring always works
}

}  // namespace fpdt
