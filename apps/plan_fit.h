// Does a placed schedule fit its budgets, and if not, what is the nearest that does?
#pragma once

#include <string>

#include "fpdt/plan/lower.h"

namespace fpdt {

// What lies outside the arena, part by part: "context 1.2 GiB, libraries 128 MiB"; "" for nothing.
std::string outside_text(const ClusterSpec& cluster);

// Of one device: the arena, and what lies outside it.
Bytes device_bytes(const Problem& problem, const Placement& placement);

// Pinned and pageable bytes of all ranks of a node.
Bytes node_bytes(const Problem& problem, const Placement& placement);

// InfeasibleError names what binds, the heaviest parts, and the nearest strategy that fits.
void require_fit(const Problem& problem, const Strategy& strategy, const Lowered& lowered);

}  // namespace fpdt
