// From a problem and a strategy to a schedule that is ready to run: ops, edges, offsets, proof.
#pragma once

#include "fpdt/plan/place.h"
#include "fpdt/schedule/verify.h"
#include "fpdt/spec/strategy.h"

namespace fpdt {

struct Lowered {
  VerifiedSchedule schedule;
  Placement placement;  // of one rank; every rank runs the same program
};

// Throws InputError with every finding when problem and strategy cannot work together. Does not
// look at budgets. `problem_section` goes into the file as its problem (one JSON object).
Lowered lower(const Problem& problem, const Strategy& strategy, std::string problem_section = "");

}  // namespace fpdt
