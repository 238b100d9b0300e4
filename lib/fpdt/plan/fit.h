// Bytes against budgets, by closed form: tens of microseconds a strategy.
#pragma once

#include <string>
#include <vector>

#include "fpdt/plan/bytes.h"
#include "fpdt/spec/strategy.h"

namespace fpdt {

// What a strategy needs of a machine.
struct Usage {
  Bytes arena;      // of one device
  Bytes device;     // the arena and what lies outside it
  Bytes host_rank;  // pinned and pageable, of one rank
  Bytes host_node;  // of all ranks of a node
  Bytes host_numa;  // of the fullest NUMA node, ranks spread evenly
  bool operator==(const Usage&) const = default;
};
Usage usage(const Problem& problem, const Prediction& prediction);
Usage usage(const Problem& problem, const Strategy& strategy);

bool within(const Problem& problem, const Usage& usage);
// Sound (check finds nothing) and within both budgets.
bool fits(const Problem& problem, const Strategy& strategy);

// Fraction that keeps exactly `kept` of the chunks.
double fraction_of(std::int64_t kept, std::int64_t chunks);

// Layers by what they keep for backward; the rest repeats forward from its input.
struct StoredLayers {
  std::int64_t everything = 0;  // Recompute::keep_all
  std::int64_t attention = 0;   // Recompute::keep_attention
  bool operator==(const StoredLayers&) const = default;
};
StoredLayers stored_layers(const Problem& problem, const Strategy& strategy);
// Layer classes in that order, all with the residency of the first class.
Strategy with_stored(const Problem& problem, Strategy strategy, const StoredLayers& stored);
// The strategy with this residency of one tensor class in every layer class.
Strategy with_kept(Strategy strategy, TensorClass tensor, double fraction);

// The same choices in one spelling: fractions without effect are zero, tiles no longer than a
// chunk.
Strategy tidied(const Problem& problem, Strategy strategy);

// Moves tensor classes that live through the step from the host to the device, as few chunks as
// make the host fit.
Strategy unburdened(const Problem& problem, Strategy strategy);

// Stores as many layers as fit, attention outputs first, and moves what the host cannot hold to
// the device: fractions are solved, not tried. A strategy that does not fit comes back as the
// nearest try.
Strategy filled(const Problem& problem, const Strategy& strategy, bool everything);

// Chunk lengths to try, ascending: powers of two, and the whole sequence. Where cuDNN computes
// attention, only lengths that it accepts.
std::vector<std::int64_t> chunk_lengths(const Problem& problem, std::int64_t sequence_parallel);
// Data-parallel degrees that leave a sequence-parallel degree which the heads allow, ascending.
std::vector<std::int64_t> data_parallel_degrees(const Problem& problem);
// Divisors of the layer count, ascending.
std::vector<std::int64_t> checkpoint_intervals(const Problem& problem);
// Everything spilled, tiles in proportion.
Strategy spilled(const Problem& problem, std::int64_t data_parallel, std::int64_t chunk_tokens);

}  // namespace fpdt
