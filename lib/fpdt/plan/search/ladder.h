// A ladder from one strategy to another, one lever at a time, with what each lever adds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fpdt/plan/search/search.h"

namespace fpdt {

struct Rung {
  std::string lever;  // the lever that was pulled; empty on the first rung
  Strategy strategy;
};

// Pulls the levers in which the two strategies differ. Each rung pulls the one with the least time
// per sequence. Only sound strategies count, and only those within the budgets while there are any.
// The first rung is `from`, the last is `to`, both with one residency for all layers. Times are
// those of the search.
std::vector<Rung> ladder(const Problem& problem, const Strategy& from, const Strategy& to,
                         const OnProgress& progress = {}, Choices table = choices());

}  // namespace fpdt
