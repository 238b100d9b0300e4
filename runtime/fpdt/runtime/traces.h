// The traces of all ranks on one process and one clock.
#pragma once

#include <vector>

#include "fpdt/runtime/world.h"
#include "fpdt/trace/trace.h"

namespace fpdt {

// Together: by how many nanoseconds the steady clock of this process's host is ahead of that of
// process 0. Half the shortest of some round trips is its uncertainty; 0 on the same host.
std::int64_t clock_lead(World& world);

// Together: returns, on process 0, the traces of all ranks in ascending order, and nothing
// elsewhere. Their `start` is by the clock of process 0. `mine` are the traces of this process's
// ranks for one step. With one process, they are returned as they are.
std::vector<Trace> gathered(World& world, std::vector<Trace> mine, std::int64_t clock_lead);

}  // namespace fpdt
