// Bytes against budgets, by prediction: tens of microseconds a strategy.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "fpdt/plan/bytes.h"
#include "fpdt/plan/place.h"
#include "fpdt/spec/choices.h"
#include "fpdt/spec/edits.h"
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
  Bytes outside;    // the arenas: driver, libraries, communicators, page tables
  Bytes mapping;    // page tables of pinned memory, a part of `outside`
  Bytes device;     // both
  Bytes host_rank;  // pinned and pageable memory of one rank
  // Additional memory while a run loads and saves (spec/checkpoint_bytes.h), if each rank is a
  // process. `rank` is the one that writes the files, and `node` is its node.
  HostBytes loading, saving;
  Bytes host_node;  // host_rank of all ranks of a node, and the larger of loading and saving
  Bytes host_numa;  // host_rank of the ranks of the fullest NUMA node; ranks are spread evenly
  bool operator==(const Usage&) const = default;
};
Usage usage(const Problem& problem, const Strategy& strategy, const Prediction& prediction);
Usage usage(const Problem& problem, const Strategy& strategy);
// The usage of a placed schedule; it is at most the predicted one.
Usage usage(const Problem& problem, const Strategy& strategy, const Placement& placement);
// The memory outside the arena of a device, with the communicators that the strategy needs, where
// each rank pins so much host memory.
Bytes outside_bytes(const Problem& problem, const Strategy& strategy, Bytes pinned);

bool within(const Problem& problem, const Usage& usage);
// The share of the host budget that lies on one NUMA node.
Bytes numa_budget(const Problem& problem);
// Whether the ranks of the fullest NUMA node find all their host memory there. A plan that fits the
// host but not this runs all the same: Linux takes the rest from other nodes, and copies of it
// cross sockets.
bool fits_numa_nodes(const Problem& problem, const Usage& usage);
// Whether check finds nothing and both budgets hold.
bool fits(const Problem& problem, const Strategy& strategy);

// Moves tensor classes that live through the step from the host to the device, one class after the
// other, with the fewest chunks that make the host fit.
Strategy with_host_relieved(const Problem& problem, Strategy strategy,
                            std::initializer_list<TensorClass> tensors = {
                                TensorClass::attention_output, TensorClass::layer_input});
// The strategy with all stored attention outputs and layer inputs on the host.
Strategy with_stored_on_host(Strategy strategy);
// The same anew, with layer inputs first: chunks of inputs and of outputs are of different numbers
// of layers.
Strategy with_inputs_relieved(const Problem& problem, const Strategy& strategy);

// Moves tensor classes from the device to the host, one class after the other, with the fewest
// chunks that make the device fit.
Strategy with_device_relieved(const Problem& problem, Strategy strategy);

// The least threshold of stored outputs with which a strategy would fit if a node's host and
// devices were one pool: what fits is hardly ever less, by a chunk that needs no ring where it is
// kept. `thresholds` + 1 if none is enough. A good guess spares most of the work.
std::int64_t least_threshold(const Problem& problem, const Strategy& strategy,
                             std::int64_t guess = -1);
// Whether a strategy, which has on the host what it stores, would fit if a node's host and devices
// were one pool.
bool may_fit(const Problem& problem, const Strategy& strategy);
// The bytes of a node that more layer inputs may take: those of its host and devices as one pool,
// or of the devices alone if inputs are there or the devices lack memory. Negative: lacking.
Bytes left_for_inputs(const Problem& problem, const Strategy& strategy);

// Stores as much of the attention outputs as fits, and moves to the device what the host cannot
// hold. Fractions are solved for, not searched. For a strategy that cannot fit, returns the
// closest attempt.
Strategy with_most_stored(const Problem& problem, const Strategy& strategy);

// The most layers that could store everything, beside others that store their attention output, if
// a node's host and devices were one pool.
std::int64_t most_everything(const Problem& problem, const Strategy& strategy);
// The strategy in which as many layers as fit store everything, and the others their attention
// output.
Strategy with_everything(const Problem& problem, const Strategy& strategy);

// Defaults for `batch` sequences over as many ranks as the heads allow, so that all share each one.
Strategy over_most_ranks(const Problem& problem, std::int64_t batch);
// The same over as many ranks as can share each product.
Strategy over_most_products(const Problem& problem, std::int64_t batch);
// The same over all ranks, in one ring.
Strategy over_all_ranks(const Problem& problem, std::int64_t batch);
// The strategy in one chunk, with activation checkpointing and its offload: a layer's input goes to
// the host, and forward is repeated in backward. All-to-alls do not overlap.
Strategy checkpointed(const Problem& problem, Strategy strategy);
// The strategy with the experts of a layer in slices, in a loop inside or outside of tiles of as
// many rows as make products fast; unchanged where that does not serve.
Strategy sliced(const Problem& problem, Strategy strategy, ExpertLoop loop);
// The strategy with one tile of the feed-forward for all rows of a chunk.
Strategy in_one_tile(const Problem& problem, Strategy strategy);
// The strategy with everything spilled and tiles in proportion to the chunk.
Strategy spilled(const Problem& problem, std::int64_t data_parallel, std::int64_t chunk_tokens,
                 std::int64_t ring = 1, std::int64_t tensor = 1);
}  // namespace fpdt
