// FPDT: Ulysses cut into sequence chunks, K/V chunks spilled to the host and prefetched while
// attention runs.
#pragma once

#include <vector>

#include "fpdt/schedule/expand.h"
#include "fpdt/schedule/schedule.h"
#include "fpdt/spec/attention_kernels.h"
#include "fpdt/spec/strategy.h"

namespace fpdt {

// The whole step as ops, lanes and order: no edges (depend), no offsets (place), no problem section
// (io). Precondition: check(problem, strategy) finds nothing.
Schedule lower_ops(const Problem& problem, const Strategy& strategy);
// The same without the table of states, which would take a sixth of a search, and without names of
// ops. Neither bytes nor seconds need them, but the verifier and a run do.
Schedule lower_without_states(const Problem& problem, const Strategy& strategy);
// `library`: which attention tiles a library computes, which problem and strategy say otherwise.
Schedule lower_without_states(const Problem& problem, const Strategy& strategy,
                              const std::vector<LibraryTiles>& library);

// The same without ops. `uses` gets what they use, which is all that bytes depend on.
Schedule sketch(const Problem& problem, const Strategy& strategy,
                const std::vector<LibraryTiles>& library, ProgramBuilder& uses);

// Every buffer that some op of the step may use, in an order that only the discrete choices of the
// strategy change. Much cheaper than the ops.
std::vector<Buffer> declared_buffers(const Problem& problem, const Strategy& strategy,
                                     const std::vector<LibraryTiles>& library);

}  // namespace fpdt
