// The same step with fewer tiles of the loss, and with fewer layers.
//
// Of a step of many chunks, most ops are tiles of the loss: one after the other on the compute
// lane, all alike. Which buffers may share bytes does not depend on how many there are, nor does
// what a step waits for. So a search places and times steps with few of them, in a third of the
// ops.
#pragma once

#include <cstdint>

#include "fpdt/cost/machine.h"
#include "fpdt/plan/place.h"
#include "fpdt/spec/strategy.h"

namespace fpdt {

// Three tiles of rows by two of words for each chunk, where the strategy has more.
Strategy with_few_loss_tiles(const Problem& problem, Strategy strategy);

// How long the tiles of the loss take in a step, without waiting.
double loss_nanoseconds(const Problem& problem, const Strategy& strategy, const Machine& machine);

// The placement that a plan of the strategy has. Precondition: check(problem, strategy) finds
// nothing.
Placement placement_of(const Problem& problem, const Strategy& strategy);
// About the same, without layers that repeat others, for a fifth of the work where layers are many.
// Nearly always the bytes are the same. Where more layers have other edges, a pair of buffers more
// or fewer may share.
Placement placement_by_few_layers(const Problem& problem, const Strategy& strategy);

}  // namespace fpdt
