// Does a placed schedule fit its budgets, and if not, what is the nearest that does?
#pragma once

#include "fpdt/plan/lower.h"

namespace fpdt {

// Of one device: the arena, and what lies outside it.
Bytes device_bytes(const Problem& problem, const Placement& placement);

// Pinned and pageable bytes of all ranks of a node.
Bytes node_bytes(const Problem& problem, const Placement& placement);

// InfeasibleError names what binds, the heaviest parts, and the nearest strategy that fits.
void require_fit(const Problem& problem, const Strategy& strategy, const Lowered& lowered);

}  // namespace fpdt
