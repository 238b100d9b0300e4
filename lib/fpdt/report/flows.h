// Values that leave the device and come back: the op that spilled them, the fetches, and the first
// op that uses each fetched copy.
#pragma once

#include <cstdint>
#include <vector>

#include "fpdt/report/live.h"

namespace fpdt {

// Issue numbers of ops among those of the trace (indices into Trace::spans).
struct Flow {
  std::int64_t spill = -1;
  std::int64_t fetch = -1;
  std::int64_t use = -1;
};

// Flows in the order of their uses, without those of which a part is missing from the trace.
std::vector<Flow> find_flows(const TracedRun& run);

}  // namespace fpdt
