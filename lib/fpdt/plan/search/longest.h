// The longest sequence that fits.
#pragma once

#include <cstdint>

#include "fpdt/plan/search/search.h"

namespace fpdt {

// The longest sequence for which the search finds a strategy, to 1/64 of itself or better; 0: none.
std::int64_t longest_sequence(const Problem& problem, const Pins& pins,
                              const OnProgress& progress = {});

}  // namespace fpdt
