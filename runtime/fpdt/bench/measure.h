// Runs a schedule on every rank at once, as training does, and says how long its ops took.
#pragma once

#include <cstdint>
#include <vector>

#include "fpdt/bench/sheet.h"
#include "fpdt/trace/trace.h"

namespace fpdt {

struct MeasureOptions {
  std::int32_t threads = 0;     // of each rank; 0: the rank's part of the cores
  std::int32_t rounds = 7;      // steps that are recorded, after one that is not
  double step_seconds = 20e-3;  // of a step, about: it has as many calls as that takes
};

// Steps of a sheet's schedule that were recorded, of all ranks.
std::vector<Trace> measure(const VerifiedSchedule& schedule, const Contents& contents,
                           const MeasureOptions& options);

// Mean seconds of the spans of op `op` (an index into Trace::ops).
double mean_seconds(const Trace& trace, std::int32_t op);

// The same, of those that ran while the lane of op `beside` had no pause: from its first begin to
// its last end. 0 when there is none.
double mean_seconds_beside(const Trace& trace, std::int32_t op, std::int32_t beside);

}  // namespace fpdt
