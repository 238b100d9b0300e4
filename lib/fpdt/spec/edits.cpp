// Strategies changed in one choice, and the values that a choice may take.
#include "fpdt/spec/edits.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "fpdt/base/largest.h"
#include "fpdt/base/math.h"
#include "fpdt/spec/attention_kernels.h"
#include "fpdt/spec/layer_places.h"

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

std::int64_t layers_storing_attention(const Problem& problem, const Strategy& strategy) {
  const std::int64_t chunks = geometry(problem, strategy).chunks;
  std::int64_t layers = 0;
  for (const LayerPlace& at : layer_places(strategy, problem.model.layers)) {
    const LayerClass& choice = strategy.layer_classes[at.layer_class];
    const bool kept = choice.recompute == Recompute::keep_attention;
    if (kept && choice.first_stored_chunk < chunks) ++layers;
  }
  return layers;
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

Strategy with_stored_from(const Problem& problem, const Strategy& strategy,
                          const StoredFrom& from) {
  const std::int64_t layers = problem.model.layers;
  const std::vector<LayerPlace> places = layer_places(strategy, layers);
  std::int64_t alone = 0;  // last layers, in segments of one
  while (alone < layers && places[index(layers - 1 - alone)].length == 1) ++alone;
  if (alone == layers) alone = 0;
  const bool reruns = longest_segment(strategy) > 1;
  const bool whole = strategy.extent == Extent::whole;
  const std::int64_t chunks = geometry(problem, strategy).chunks;
  Strategy made = strategy;
  const LayerClass like = strategy.layer_classes.front();
  made.layer_classes.clear();
  const auto add = [&](std::int64_t count, std::int64_t chunk) {
    if (count <= 0) return;
    LayerClass one = like;
    one.layers = count;
    one.first_stored_chunk = whole && chunk > 0 ? chunks : chunk;
    one.recompute = Recompute::keep_attention;
    if (one.first_stored_chunk == chunks && !reruns) {
      one.recompute = Recompute::from_input;
      one.first_stored_chunk = 0;
    }
    LayerClass same = one;
    if (!made.layer_classes.empty()) same.layers = made.layer_classes.back().layers;
    if (!made.layer_classes.empty() && same == made.layer_classes.back()) {
      made.layer_classes.back().layers += count;
    } else {
      made.layer_classes.push_back(one);
    }
  };
  const std::int64_t early = std::min(from.layers, layers - alone);
  add(early, from.chunk);
  add(layers - alone - early, from.chunk + 1);
  add(alone, from.chunk < chunks ? 0 : chunks);
  made.layer_classes.back().layers = 0;
  return made;
}

Strategy with_first_stored(Strategy strategy, std::int64_t chunk) {
  for (LayerClass& one : strategy.layer_classes) one.first_stored_chunk = chunk;
  return strategy;
}

std::int64_t thresholds(const Problem& problem, const Strategy& strategy) {
  return strategy.extent == Extent::whole ? 1 : geometry(problem, strategy).chunks;
}

Strategy with_least_repeated(const Problem& problem, const Strategy& strategy,
                             const std::function<bool(const Strategy&)>& fits, std::int64_t guess,
                             const std::function<double(const Strategy&)>& lack) {
  const std::int64_t layers = problem.model.layers;
  const std::int64_t most = thresholds(problem, strategy);
  const auto fit = [&](const StoredFrom& from) {
    return fits(with_stored_from(problem, strategy, from));
  };
  // Of none, of the last chunk, of one more and so on.
  const auto chunks_fit = [&](std::int64_t chunks) { return fit({most + 1 - chunks, layers}); };
  const std::int64_t stored =
      largest_that_fits(most + 1, most + 1 - std::max<std::int64_t>(guess, 0), chunks_fit);
  if (stored == 0) return with_stored(problem, strategy, {});
  const std::int64_t chunk = most + 1 - stored;
  if (chunk == 0) return with_stored_from(problem, strategy, {0, layers});
  // Whole segments, so that few kinds differ, unless chunks are so few that each is worth much.
  constexpr std::int64_t kFew = 32;
  const std::int64_t unit = most < kFew ? 1 : longest_segment(strategy);
  const auto units_fit = [&](std::int64_t units) { return fit({chunk - 1, units * unit}); };
  const std::int64_t others = div_ceil(layers, unit) - 1;  // all do not fit
  std::int64_t likely = div_ceil(others, 2);
  if (lack) {
    const double none = lack(with_stored_from(problem, strategy, {chunk, layers}));
    const double all = lack(with_stored_from(problem, strategy, {chunk - 1, layers}));
    const double share = all > none ? std::clamp(-none / (all - none), 0.0, 1.0) : 0.5;
    likely = static_cast<std::int64_t>(share * static_cast<double>(layers)) / unit;
  }
  const std::int64_t units = largest_that_fits(others, likely, units_fit);
  return with_stored_from(problem, strategy, {chunk - 1, units * unit});
}

OutputWeights output_weights(const Problem& problem, double repeated_share) {
  const ModelSpec& model = problem.model;
  const double all = static_cast<double>(model.q_width()) / static_cast<double>(model.hidden);
  return {repeated_share * all, (1 - repeated_share) * all};
}

double repeated_share(const Problem& problem, const Strategy& strategy) {
  const std::int64_t chunks = geometry(problem, strategy).chunks;
  std::int64_t repeated = 0;
  for (const LayerPlace& at : layer_places(strategy, problem.model.layers)) {
    repeated += std::min(chunks, strategy.layer_classes[at.layer_class].repeated(chunks));
  }
  return static_cast<double>(repeated) / static_cast<double>(chunks * problem.model.layers);
}

double segments_memory(const std::vector<std::int64_t>& lengths, const OutputWeights& outputs) {
  double most = 0;
  std::int64_t layers = 0;
  for (std::size_t s = 0; s < lengths.size(); ++s) {
    layers += lengths[s];
    most = std::max(most, static_cast<double>(s + 1) +
                              static_cast<double>(lengths[s]) * (1 + outputs.repeated) +
                              static_cast<double>(layers) * outputs.stored);
  }
  return most;
}

namespace {

// Takes the longest segments, from the last on, that need at most so much memory and so many layers
// each. False if they do not have all layers.
template <class Take>
bool take_segments(std::int64_t layers, std::int64_t count, double memory, std::int64_t longest,
                   const OutputWeights& outputs, Take take) {
  std::int64_t left = layers;
  for (std::int64_t segment = count - 1; segment >= 0; --segment) {
    const double inside =
        memory - static_cast<double>(segment + 1) - outputs.stored * static_cast<double>(left);
    const auto most = static_cast<std::int64_t>(std::floor(inside / (1 + outputs.repeated)));
    const std::int64_t length = std::min({most, longest, left - segment});
    if (length <= 0) return false;
    take(length);
    left -= length;
  }
  return left == 0;
}

// Those segments, from the first on; none if they do not have all layers.
std::vector<std::int64_t> segments_within(std::int64_t layers, std::int64_t count, double memory,
                                          std::int64_t longest, const OutputWeights& outputs) {
  std::vector<std::int64_t> lengths;
  const auto take = [&](std::int64_t length) { lengths.push_back(length); };
  if (!take_segments(layers, count, memory, longest, outputs, take)) return {};
  std::reverse(lengths.begin(), lengths.end());
  return lengths;
}

}  // namespace

bool segments_fit(std::int64_t layers, std::int64_t count, double memory,
                  const OutputWeights& outputs) {
  return take_segments(layers, count, memory, layers, outputs, [](std::int64_t) {});
}

Segments least_segments(std::int64_t layers, std::int64_t count, const OutputWeights& outputs) {
  double low = 0, high = static_cast<double>(layers + 2) * (2 + outputs.repeated + outputs.stored);
  constexpr int kRounds = 24;
  for (int i = 0; i < kRounds; ++i) {
    const double middle = (low + high) / 2;
    (segments_fit(layers, count, middle, outputs) ? high : low) = middle;
  }
  std::int64_t longest = div_ceil(layers, count);
  Segments made;
  made.memory = high;
  while (made.lengths.empty()) {
    made.lengths = segments_within(layers, count, high, longest++, outputs);
  }
  std::vector<std::int64_t>& lengths = made.lengths;
  // What is left for the first segment may be short.
  std::vector<std::int64_t> descending = lengths;
  std::sort(descending.begin(), descending.end(), std::greater<>());
  if (segments_memory(descending, outputs) <= high) lengths = descending;
  while (lengths.size() > 1 && lengths.back() == lengths[lengths.size() - 2]) lengths.pop_back();
  return made;
}

std::vector<std::vector<std::int64_t>> segment_shapes(std::int64_t layers,
                                                      const OutputWeights& outputs) {
  std::vector<std::vector<std::int64_t>> all;
  double least = std::numeric_limits<double>::max();
  constexpr double kLess = 1e-3;
  for (std::int64_t length = 1; length <= layers; ++length) {
    const Segments made = least_segments(layers, div_ceil(layers, length), outputs);
    if (made.memory > least - kLess) continue;
    least = made.memory;
    all.push_back(made.lengths);
  }
  return all;
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
