// FPDT: Ulysses cut into sequence chunks, K/V chunks spilled to the host and prefetched while
// attention runs.
#pragma once

#include "fpdt/schedule/schedule.h"
#include "fpdt/spec/strategy.h"

namespace fpdt {

// The whole step as ops, lanes and order: no edges (depend), no offsets (place), no problem section
// (io). Precondition: check(problem, strategy) finds nothing.
Schedule lower_ops(const Problem& problem, const Strategy& strategy);

}  // namespace fpdt
