// Traces of times that are made up: each op takes what its work suggests, and starts when its lane
// is free and what it waits for is complete.
#pragma once

#include <vector>

#include "fpdt/report/live.h"
#include "fpdt/spec/strategy.h"

namespace fpdt::test {

// `slower` stretches the ops of every lane, the first lane least, so that two traces of one
// schedule differ in more than scale.
Trace made_up_trace(const Program& program, const std::vector<Call>& calls, double slower = 0);

// The spans of calls [first, last) alone.
Trace cut(const Trace& trace, std::int32_t first, std::int32_t last);

// Two layers of a small Llama on two ranks, all spilled; `chunks` chunks.
Schedule small_schedule(std::int64_t chunks);

// A schedule with its program, its calls and a made-up trace.
struct MadeUp {
  explicit MadeUp(std::int64_t chunks);
  Schedule schedule;
  Program program;
  Trace trace;
  Trace measured;  // slower
  [[nodiscard]] TracedRun run() const { return {&program, &schedule.train, &trace}; }
  [[nodiscard]] TracedRun second() const { return {&program, &schedule.train, &measured}; }
};

}  // namespace fpdt::test
