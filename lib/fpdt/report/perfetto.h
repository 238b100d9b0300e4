// Traces in the JSON of Chrome's trace viewer, which ui.perfetto.dev and chrome://tracing open.
//
// There is one process for each trace, named by its source and rank, and in it one thread for each
// lane. A thread has a slice for each call and within it a slice for each op. Counters show the
// live bytes of each space, in total and by category. An op's arguments are its operands, its flops
// and bytes and their rates. Flops are those executed under the causal mask, bytes those of device
// memory, of the copy, or that one rank sends. Arrows lead from the op that spills a value over
// each of its fetches to the first use of the fetched copy. Times are microseconds with nanosecond
// precision. Ranks stand on one clock (Trace::start).
#pragma once

#include <string>
#include <vector>

#include "fpdt/report/live.h"

namespace fpdt {

// The runs, of any ranks and sources, stand side by side.
std::string perfetto_json(std::vector<TracedRun> runs);

}  // namespace fpdt
