// What a rank sends in a training step, by the formula of docs/processes.md. The sum over the
// schedule (schedule/traffic.h) must be equal to it, and what communicators count to that.
#pragma once

#include "fpdt/schedule/traffic.h"
#include "fpdt/spec/strategy.h"

namespace fpdt {

// Bytes that rank 0 sends. Precondition: check(problem, strategy) finds nothing.
Traffic closed_form_traffic(const Problem& problem, const Strategy& strategy);

}  // namespace fpdt
