// Turns a problem and a strategy into a schedule that is ready to run: ops, edges, offsets,
// verification.
#pragma once

#include <functional>
#include <string_view>

#include "fpdt/plan/place.h"
#include "fpdt/schedule/verify.h"
#include "fpdt/spec/strategy.h"

namespace fpdt {

struct Lowered {
  VerifiedSchedule schedule;
  Placement placement;  // of one rank; every rank runs the same program
};

// Called with the name of each pass before it runs, and with "" after the last.
using PassObserver = std::function<void(std::string_view pass)>;

// Runs the passes "lower", "depend", "place" and "verify"; none can be left out. Throws InputError
// with every finding when problem and strategy cannot work together. Ignores budgets.
// `problem_section`, one JSON object, goes into the file as its problem.
Lowered lower(const Problem& problem, const Strategy& strategy, std::string problem_section = "",
              const PassObserver& observer = {});

}  // namespace fpdt
