// Prediction and measurement of one step side by side: seconds of the step, of every kind of op and
// of every lane.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fpdt/schedule/schedule.h"
#include "fpdt/trace/trace.h"

namespace fpdt {

// Times of one rank; measured times are the mean over the ranks.
struct ComparedTime {
  std::string what;      // a word of kBodyNames, `h2d` or `d2h` for copies by direction, or a lane
  std::int64_t ops = 0;  // in a step
  double predicted = 0;  // seconds of running, slowed by others
  double measured = 0;
};

struct Comparison {
  double predicted_seconds = 0;     // of the step
  double measured_seconds = 0;      // from the first start of a rank to the last end
  std::vector<ComparedTime> kinds;  // in the order of kBodyNames
  std::vector<ComparedTime> lanes;  // in the order of the trace
};

// (predicted - measured) / measured: -0.8 when the measured time is five times the predicted one.
double relative_error(double predicted, double measured);
// The same as "-80 %". Tables and pictures use it.
std::string format_error(double predicted, double measured);

// The traces hold every op of the same calls. `measured` has one trace for each rank, at least one.
Comparison compare(const Schedule& schedule, const Trace& predicted,
                   const std::vector<Trace>& measured);

// A table for people.
std::string table(const Comparison& comparison);
// {"predicted_seconds":...,"measured_seconds":...,"error":...,"kinds":[...],"lanes":[...]}
std::string json(const Comparison& comparison);

}  // namespace fpdt
