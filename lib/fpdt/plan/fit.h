// Bytes against budgets, by prediction: tens of microseconds a strategy.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "fpdt/plan/bytes.h"
#include "fpdt/plan/place.h"
#include "fpdt/spec/strategy.h"

namespace fpdt {

// Host memory of one rank, and of all ranks of a node.
struct HostBytes {
  Bytes rank, node;
  bool operator==(const HostBytes&) const = default;
};

// The memory that a strategy needs.
struct Usage {
  Bytes arena;      // on one device
  Bytes device;     // the arena and the memory outside it
  Bytes host_rank;  // pinned and pageable memory of one rank
  // More while a run loads and saves (spec/checkpoint_bytes.h), if each rank is a process. The rank
  // is the one that writes the files, which is on this node.
  HostBytes loading, saving;
  Bytes host_node;  // host_rank of all ranks of a node, and the larger of loading and saving
  Bytes host_numa;  // host_rank of the ranks of the fullest NUMA node; ranks are spread evenly
  bool operator==(const Usage&) const = default;
};
Usage usage(const Problem& problem, const Prediction& prediction);
Usage usage(const Problem& problem, const Strategy& strategy);
// That of a placed schedule, at most the predicted one.
Usage usage(const Problem& problem, const Placement& placement);

bool within(const Problem& problem, const Usage& usage);
// The share of the host budget that lies on one NUMA node.
Bytes numa_budget(const Problem& problem);
// Whether the ranks of the fullest NUMA node find all their host memory there. A plan that fits the
// host but not this runs all the same: Linux takes the rest from other nodes, and copies of it
// cross sockets.
bool fits_numa_nodes(const Problem& problem, const Usage& usage);
// Whether check finds nothing and both budgets hold.
bool fits(const Problem& problem, const Strategy& strategy);

// A fraction of four digits that keeps exactly `kept` of the chunks.
double fraction_of(std::int64_t kept, std::int64_t chunks);

// Numbers of layers by what they store for backward; the rest repeats forward from its input.
struct StoredLayers {
  std::int64_t everything = 0;  // Recompute::keep_all
  std::int64_t attention = 0;   // Recompute::keep_attention
  bool operator==(const StoredLayers&) const = default;
};
StoredLayers stored_layers(const Problem& problem, const Strategy& strategy);
// The strategy with layer classes in that order, all with the residency of the first class.
Strategy with_stored(const Problem& problem, Strategy strategy, const StoredLayers& stored);
// The strategy with this residency of one tensor class in every layer class.
Strategy with_kept(Strategy strategy, TensorClass tensor, double fraction);

// The strategy in canonical form: fractions are whole chunks, and what has no effect is not set.
Strategy tidied(const Problem& problem, Strategy strategy);

// Moves tensor classes that live through the step from the host to the device, one class after the
// other, with the fewest chunks that make the host fit.
Strategy unburdened(const Problem& problem, Strategy strategy,
                    std::initializer_list<TensorClass> tensors = {TensorClass::attention_output,
                                                                  TensorClass::layer_input});

// Stores as many layers as fit, attention outputs first, and moves to the device what the host
// cannot hold. Fractions are solved for, not searched. For a strategy that cannot fit, returns the
// closest attempt.
Strategy filled(const Problem& problem, const Strategy& strategy, bool everything);

// Chunk lengths to try, ascending: powers of two and the whole sequence. Where cuDNN computes
// attention, only lengths that it accepts. Each of several hops repeats all tiles, so that chunks
// are fewer.
std::vector<std::int64_t> chunk_lengths(const Problem& problem, std::int64_t sequence_parallel,
                                        std::int64_t ring = 1, std::int64_t hops = 1);
// Data-parallel degrees, ascending, for which the heads allow the sequence-parallel degree that
// results.
std::vector<std::int64_t> data_parallel_degrees(const Problem& problem);
// Divisors of the layer count, ascending.
std::vector<std::int64_t> checkpoint_intervals(const Problem& problem);
// Defaults for `batch` sequences over as many ranks as the heads allow, so that all share each one.
Strategy over_most_ranks(const Problem& problem, std::int64_t batch);
// The same over all ranks, in one ring.
Strategy over_all_ranks(const Problem& problem, std::int64_t batch);
// The strategy with everything spilled and tiles in proportion to the chunk.
Strategy spilled(const Problem& problem, std::int64_t data_parallel, std::int64_t chunk_tokens,
                 std::int64_t ring = 1);
// The strategy with rings of this many ranks. Where they have several, keys are gathered unless
// they go around.
Strategy with_ring(Strategy strategy, std::int64_t ring);
// The rings that let `sequence_parallel` ranks share the heads, ascending. 1: heads alone do.
std::vector<std::int64_t> rings(const Problem& problem, std::int64_t sequence_parallel);

}  // namespace fpdt
