// A plan: a strategy, its verified schedule, and the predicted bytes and times.
#pragma once

#include <array>
#include <functional>

#include "fpdt/plan/fit.h"
#include "fpdt/plan/lower.h"
#include "fpdt/plan/search/search.h"
#include "fpdt/plan/throughput.h"
#include "fpdt/schedule/traffic.h"

namespace fpdt {

struct Plan {
  Strategy strategy;
  Lowered lowered;
  Usage usage;                             // of the placed schedule
  Traffic sent;                            // by rank 0 in a step
  Simulation simulation;                   // at typical rates, with the traced calls
  std::array<Throughput, 3> throughput{};  // by RateEnd: slow, typical, fast
};

// Lowers and simulates in full. Ignores budgets. The trace holds the whole step if it has at most
// `traced_ops` ops, else the first, middle and last call of each block.
Plan make_plan(const Problem& problem, const Strategy& strategy, std::string problem_section = "",
               std::int64_t traced_ops = 0);

// The calls that such a trace holds.
std::function<bool(std::size_t)> calls_to_trace(const Schedule& schedule, std::int64_t traced_ops);

// The budget that segments of fewer layers would exceed, which would repeat less. Nothing if
// segments have one layer, or if shorter ones fit.
std::optional<Need> need_of_shorter_segments(const Problem& problem, const Strategy& strategy);

// The limit of a plan: a budget that is used by over nine tenths, or that shorter segments would
// exceed; else the busiest lane.
Binding binding(const Problem& problem, const Plan& plan);

}  // namespace fpdt
