// How long a strategy computes at least.
#pragma once

#include <cstdint>

#include "fpdt/cost/machine.h"
#include "fpdt/spec/strategy.h"

namespace fpdt {

// Nanoseconds of products and attention on one rank, a lower bound on any schedule of the strategy.
std::int64_t compute_floor(const Problem& problem, const Strategy& strategy,
                           const Machine& machine);

}  // namespace fpdt
