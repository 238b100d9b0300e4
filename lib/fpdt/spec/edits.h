// Strategies changed in one choice, and the values that a choice may take.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "fpdt/spec/strategy.h"

namespace fpdt {

// A fraction of four digits that keeps exactly `kept` of the chunks.
double fraction_of(std::int64_t kept, std::int64_t chunks);

// Numbers of layers by what they store for backward; the rest repeats forward from its input.
struct StoredLayers {
  std::int64_t everything = 0;  // Recompute::keep_all
  std::int64_t attention = 0;   // Recompute::keep_attention
  bool operator==(const StoredLayers&) const = default;
};
StoredLayers stored_layers(const Problem& problem, const Strategy& strategy);
// How many of those under keep_attention store some of it across the step. For the others a rerun
// makes all of it once, and keeps it until backward.
std::int64_t layers_storing_attention(const Problem& problem, const Strategy& strategy);
// The strategy with layer classes in that order, all with the residency of the first class.
Strategy with_stored(const Problem& problem, Strategy strategy, const StoredLayers& stored);
// Where attention outputs are stored from: from one chunk on in the first `layers`, from the next
// in the others. Layers in segments of one that follow longer ones store them all, if any layer
// stores some.
struct StoredFrom {
  std::int64_t chunk = 0;
  std::int64_t layers = 0;
};
Strategy with_stored_from(const Problem& problem, const Strategy& strategy, const StoredFrom& from);
// The strategy with this threshold in every layer class.
Strategy with_first_stored(Strategy strategy, std::int64_t chunk);
// How many chunks such a threshold may leave out.
std::int64_t thresholds(const Problem& problem, const Strategy& strategy);
// The strategy with the least attention repeated that `fits` accepts, near `guess` if it is known.
// `lack`, if known: the bytes that a strategy needs beyond the budgets, negative if some are left;
// about a line in what is stored.
// A causal row costs as much as it is long, so the threshold is nearly the same in all layers. If
// none fits, nothing is stored.
Strategy with_least_repeated(const Problem& problem, const Strategy& strategy,
                             const std::function<bool(const Strategy&)>& fits,
                             std::int64_t guess = -1,
                             const std::function<double(const Strategy&)>& lack = {});
// The strategy with this residency of one tensor class in every layer class.
Strategy with_kept(Strategy strategy, TensorClass tensor, double fraction);

// Chunk lengths to try, ascending: powers of two and the whole sequence. Where cuDNN computes
// attention, only lengths that it accepts. Each of several hops repeats all tiles, so that chunks
// are fewer.
std::vector<std::int64_t> chunk_lengths(const Problem& problem, std::int64_t sequence_parallel,
                                        std::int64_t ring = 1, std::int64_t hops = 1);
// Data-parallel degrees, ascending, for which the heads allow the sequence-parallel degree that
// results.
std::vector<std::int64_t> data_parallel_degrees(const Problem& problem);
// Bytes of a layer's attention output, where that of its input is 1: what backward makes again and
// keeps until it has used it, and what forward stores.
struct OutputWeights {
  double repeated = 0, stored = 0;
};
OutputWeights output_weights(const Problem& problem, double repeated_share);
// The share of attention outputs that backward makes again, of all layers.
double repeated_share(const Problem& problem, const Strategy& strategy);

// The lengths of so many segments with which inputs and outputs need the least memory, and among
// these those whose longest is shortest. What a segment repeats takes the place of what later ones
// stored, so segments grow towards the input.
struct Segments {
  std::vector<std::int64_t> lengths;  // as in Strategy::segments
  double memory = 0;                  // in inputs of a layer
};
Segments least_segments(std::int64_t layers, std::int64_t count, const OutputWeights& outputs);
// Whether so many segments need no more than this memory, if their lengths are chosen well.
bool segments_fit(std::int64_t layers, std::int64_t count, double memory,
                  const OutputWeights& outputs);
// The memory that segments of these lengths need, in inputs of a layer: a ring that inputs and
// outputs share (docs/memory.md, section 3), with the gradients of inputs.
double segments_memory(const std::vector<std::int64_t>& lengths, const OutputWeights& outputs);
// From segments of one layer to those that need the least memory. Fewer segments repeat more
// layers, so that each of these needs less than all before it.
std::vector<std::vector<std::int64_t>> segment_shapes(std::int64_t layers,
                                                      const OutputWeights& outputs = {});
// The strategy with rings of this many ranks. Where they have several, keys are gathered unless
// they go around.
Strategy with_ring(Strategy strategy, std::int64_t ring);
// The rings that let `sequence_parallel` ranks share the heads, ascending. 1: heads alone do.
std::vector<std::int64_t> rings(const Problem& problem, std::int64_t sequence_parallel);

}  // namespace fpdt
