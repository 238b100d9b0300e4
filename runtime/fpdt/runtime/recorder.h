// Turns the times of a step into a Trace.
#pragma once

#include <cstdint>
#include <span>

#include "fpdt/runtime/backend.h"
#include "fpdt/schedule/expand.h"
#include "fpdt/trace/trace.h"

namespace fpdt {

// The number of ops in a list of calls.
std::int64_t op_count(const Program& program, std::span<const Call> calls);

// `intervals` are those of the ops, in issue order. Times count from the first begin. The slot of a
// version is live from the first begin to the last end of the ops that touch it. States, inputs and
// outputs are always live.
Trace make_trace(const Program& program, std::span<const Call> calls,
                 std::span<const Interval> intervals, std::int64_t rank);

}  // namespace fpdt
