// The waits between ops, as a graph for Graphviz: ops as nodes, a box for each lane, edges of
// `after` solid, the order of a lane dashed. For small schedules or a few calls; every rank has the
// same.
#pragma once

#include <string>
#include <vector>

#include "fpdt/report/timeline.h"
#include "fpdt/schedule/expand.h"

namespace fpdt {

// Draws the ops of the calls in `range` (numbers within `calls`); edges to ops of other calls are
// left out.
std::string dependency_dot(const Program& program, const std::vector<Call>& calls,
                           const CallRange& range);

}  // namespace fpdt
