// Values that leave the device and come back: which op spilled them, which fetches bring them, and
// which op first uses what came.
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

// In the order of the uses. Flows of which a part is not in the trace are left out.
std::vector<Flow> find_flows(const TracedRun& run);

}  // namespace fpdt
