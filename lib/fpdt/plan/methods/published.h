// A method as its authors run it: the schedule of its published strategy, and beside it what their
// code does needlessly. Waste is a model of somebody else's program. It belongs to no strategy, so
// nothing searches it and nothing executes it.
#pragma once

#include "fpdt/plan/methods/method.h"
#include "fpdt/plan/plan.h"

namespace fpdt {

// The memory and time that the waste of a method adds to a step.
struct Wasted {
  Bytes device;
  Bytes host_rank;
  double step_seconds = 0;
};
Wasted wasted(const Problem& problem, const Method& method, const Strategy& strategy,
              const Schedule& schedule);
// Adds it to the bytes and the throughput of a plan.
void add_waste(const Problem& problem, const Wasted& added, Usage& usage,
               std::array<Throughput, 3>& throughput);

// The problem for published implementations: they have kernels of their own, which take tiles of
// any size at the price of the cluster's.
Problem with_published_kernels(Problem problem);

// A plan of the published strategy, or of another configuration of the same code. Its bytes and its
// throughput include the waste; its simulation is that of the schedule alone.
struct PublishedPlan {
  Plan plan;
  Wasted wasted;
};
// Ignores budgets.
PublishedPlan published_plan(const Problem& problem, const Method& method,
                             const Strategy& strategy);

}  // namespace fpdt
