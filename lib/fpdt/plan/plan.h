// A plan: a strategy, its proven schedule, and what it will do.
#pragma once

#include <array>
#include <functional>

#include "fpdt/plan/fit.h"
#include "fpdt/plan/lower.h"
#include "fpdt/plan/search.h"
#include "fpdt/plan/throughput.h"

namespace fpdt {

struct Plan {
  Strategy strategy;
  Lowered lowered;
  Usage usage;                             // of the placed schedule
  Simulation simulation;                   // at typical rates, with the traced calls
  std::array<Throughput, 3> throughput{};  // by RateEnd: slow, typical, fast
};

// Lowers and simulates in full. Does not look at budgets. The trace holds a step of at most
// `traced_ops` ops whole; of a longer one the first, middle and last call of each block.
Plan make_plan(const Problem& problem, const Strategy& strategy, std::string problem_section = "",
               std::int64_t traced_ops = 0);

// The calls of such a trace.
std::function<bool(std::size_t)> telling_calls(const Schedule& schedule, std::int64_t traced_ops);

// What a placed schedule needs.
Usage usage(const Problem& problem, const Placement& placement);

// What holds a plan back: a budget of which over nine tenths are used, else its busiest lane.
Binding binding(const Problem& problem, const Plan& plan);

}  // namespace fpdt
