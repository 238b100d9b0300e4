// Traces in the JSON of Chrome's trace viewer, which ui.perfetto.dev and chrome://tracing open.
//
// One process for each trace, named by its source and rank; one thread for each lane; on it a slice
// for each call and within it a slice for each op. Counters follow the live bytes of each space by
// category. Arrows lead from the op that spills a value over each fetch of it to the first use of
// what was fetched. Times are microseconds, to the nanosecond.
#pragma once

#include <string>
#include <vector>

#include "fpdt/report/live.h"

namespace fpdt {

// Runs of any ranks and sources, side by side.
std::string perfetto_json(const std::vector<TracedRun>& runs);

}  // namespace fpdt
