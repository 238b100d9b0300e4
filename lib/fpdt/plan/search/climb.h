// One pass of the search: from starts, or from a strategy, to where no single lever gains.
#pragma once

#include <vector>

#include "fpdt/plan/search/estimates.h"
#include "fpdt/plan/search/search.h"

namespace fpdt {

// Times are estimates, bytes are predicted. `problem` may have more room than there is.
SearchResult climb(const Problem& problem, const Pins& pins, const SearchEffort& effort,
                   Estimates& estimates);
// The same from one strategy that fits.
SearchResult climb_from(const Strategy& strategy, const Problem& problem, const Pins& pins,
                        const SearchEffort& effort, Estimates& estimates);

// The candidates that no other beats in cost, device and host memory at once, ascending by cost.
// Memory that is less by under `equal` of its budget counts as equal.
std::vector<Candidate> pareto(const Problem& problem, std::vector<Candidate> candidates,
                              double equal = 0);

}  // namespace fpdt
