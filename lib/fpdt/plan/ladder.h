// From one strategy to another, one lever at a time: what each gives beside those before it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fpdt/spec/strategy.h"

namespace fpdt {

struct Rung {
  std::string lever;  // what was changed last; empty on the first rung
  Strategy strategy;
};

// The levers in which the two differ, each time the one after which a sequence takes least time, of
// those whose strategy is sound and, as long as there are such, within the budgets. The first rung
// is `from`, the last `to`, both with one residency for all layers; times are those of the search.
std::vector<Rung> ladder(const Problem& problem, const Strategy& from, const Strategy& to);

}  // namespace fpdt
