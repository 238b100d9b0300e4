// Turns the times of a step into a Trace.
#pragma once

#include <cstdint>
#include <span>

#include "fpdt/runtime/backend.h"
#include "fpdt/schedule/expand.h"
#include "fpdt/trace/trace.h"

namespace fpdt {

// Ops of a call list.
std::int64_t op_count(const Program& program, std::span<const Call> calls);

// `intervals` are those of the ops in issue order. Spans count from the first begin. A version's
// slot is live from the begin of the first op that touches it to the end of the last; states,
// inputs and outputs always.
Trace make_trace(const Program& program, std::span<const Call> calls,
                 std::span<const Interval> intervals, std::int64_t rank);

}  // namespace fpdt
