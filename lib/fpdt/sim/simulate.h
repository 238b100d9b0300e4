// Simulates a schedule with the machine's formulas as the clock.
//
// Lanes run their ops in issue order. An op starts when its lane is free and its waits are
// complete; ops that run at the same time slow each other as the machine says. Time is whole ticks
// inside and nanoseconds outside, so the same input gives the same output to the bit. A tick is a
// picosecond, or the smallest power of two of them in which the step can be counted.
//
// A long run of equal layers settles: when the state of all lanes is the same at two calls of a
// block, the events between them repeat as long as the calls repeat, and whole periods are skipped.
// This is exact, not an estimate (clock.h).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "fpdt/cost/machine.h"
#include "fpdt/schedule/expand.h"
#include "fpdt/schedule/schedule.h"
#include "fpdt/trace/trace.h"

namespace fpdt {

struct SimulationOptions {
  // edges: wait for the ops that `after` names. hazards: wait for what versions demand, for
  // schedules before `depend`. The times are the same, except where one call of a block needs an
  // edge that makes other calls wait. Skipping with hazards requires a schedule that verifies once
  // it has edges.
  enum class Waits : std::uint8_t { edges, hazards };
  Waits waits = Waits::edges;
  bool skip_periods = true;
  // The calls (by number within the list) whose spans the trace holds. They are simulated op by op;
  // skipping resumes between them. Empty: none.
  std::function<bool(std::size_t call)> trace_call;
};

// When a call's ops ran, from the start of the first to the end of the last. A call without ops
// begins and ends at one moment.
struct CallTime {
  std::int64_t begin = 0;  // nanoseconds
  std::int64_t end = 0;
  bool operator==(const CallTime&) const = default;
};

struct KindTime {
  std::int64_t ops = 0;
  std::int64_t nanoseconds = 0;  // running time, slowed by others
  bool operator==(const KindTime&) const = default;
};

struct Simulation {
  std::int64_t nanoseconds = 0;        // duration of the step
  std::array<std::int64_t, 4> busy{};  // nanoseconds that lanes of a kind run, by LaneKind
  std::array<double, kWorks> flops{};  // executed, by Work; the mean of all ranks
  std::vector<KindTime> kinds;         // by index of kBodyNames, of one step
  std::vector<CallTime> calls;         // of every call in order (skipped ones by repetition)
  std::int64_t ops = 0;                // of the step
  std::int64_t simulated = 0;          // ops that were not skipped
  Trace trace;                         // rank, lanes, ops and the spans of the chosen calls
};

// One step (schedule.train or schedule.evaluate) of one rank. Ranks run the same ops, but where
// their tokens differ, causal tiles may see fewer pairs; then the rank is one with the most, which
// the others wait for. Precondition: references resolve and edges name earlier ops.
Simulation simulate(const Schedule& schedule, const std::vector<Call>& calls,
                    const Machine& machine, const SimulationOptions& options = {});
// The same with the edges of a program of a schedule.
Simulation simulate(const Program& program, const std::vector<Call>& calls, const Machine& machine,
                    const SimulationOptions& options = {});

// The same step of every rank, on one clock. At a collective a rank waits for those that it sends
// to and receives from, so a rank with less attention idles. Flops are those of each rank. No
// period is skipped. Precondition: as above, and options.waits is edges.
std::vector<Simulation> simulate_together(const Schedule& schedule, const std::vector<Call>& calls,
                                          const Machine& machine,
                                          const SimulationOptions& options = {});

// Lower bound of the step in nanoseconds: the busiest lane's ops, each running alone, summed.
std::int64_t lower_bound(const Schedule& schedule, const std::vector<Call>& calls,
                         const Machine& machine);

}  // namespace fpdt
