// From one strategy to another, one lever at a time: what each lever adds to those before it.
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

// Pulls the levers in which the two differ, at each rung the one that leaves a sequence the least
// time. Only sound strategies count, and only those within the budgets while there are any. The
// first rung is `from`, the last is `to`, both with one residency for all layers; times are those
// of the search.
std::vector<Rung> ladder(const Problem& problem, const Strategy& from, const Strategy& to);

}  // namespace fpdt
