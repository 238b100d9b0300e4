// Traces with made-up times. Each op takes the time that its work suggests, and starts when its
// lane is free and the ops that it waits for are complete.
#pragma once

#include <vector>

#include "fpdt/report/live.h"
#include "fpdt/spec/strategy.h"

namespace fpdt::test {

// `slower` stretches the ops of every lane, the first lane least, so that two traces of one
// schedule differ in more than scale.
Trace made_up_trace(const Program& program, const std::vector<Call>& calls, double slower = 0);

// Only the spans of calls [first, last).
Trace cut(const Trace& trace, std::int32_t first, std::int32_t last);

// `count` ranks that do as `trace` says, each starting `apart` nanoseconds after the one before.
std::vector<Trace> ranks_of(const Trace& trace, std::int64_t count, std::int64_t apart);

// Two layers of a small Llama on two ranks with `chunks` chunks, all of them spilled. With segments
// of both layers, the first repeats forward. `on_host`: so are gradients and optimizer states.
Schedule small_schedule(std::int64_t chunks, std::int64_t segment = 1, bool on_host = false);

// A schedule with its program, its calls and a made-up trace.
struct MadeUp {
  explicit MadeUp(std::int64_t chunks, std::int64_t segment = 1, bool on_host = false);
  Schedule schedule;
  Program program;
  Trace trace;
  Trace measured;  // slower than `trace`
  [[nodiscard]] TracedRun run() const { return {&program, &schedule.train, &trace}; }
  [[nodiscard]] TracedRun second() const { return {&program, &schedule.train, &measured}; }
};

// Runs of the ranks on one clock.
std::vector<TracedRun> runs_of(const MadeUp& made, const std::vector<Trace>& ranks);

}  // namespace fpdt::test
