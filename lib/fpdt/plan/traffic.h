// What a rank sends in a training step, by formula. Tests require it to be equal to the sum over
// the schedule (schedule/traffic.h), and that to what communicators count. docs/processes.md has
// the formula in words.
#pragma once

#include "fpdt/schedule/traffic.h"
#include "fpdt/spec/strategy.h"

namespace fpdt {

// Bytes that rank 0 sends. Precondition: check(problem, strategy) finds nothing.
Traffic closed_form_traffic(const Problem& problem, const Strategy& strategy);

}  // namespace fpdt
