// A plan reduced to its numbers.
#include "fpdt/plan/answers/outcome.h"

#include <algorithm>

namespace fpdt {

Outcome outcome(const Problem& problem, const Strategy& strategy) {
  return outcome(problem, make_plan(problem, strategy));
}

Outcome outcome(const Problem& problem, const Plan& plan) {
  const Strategy& strategy = plan.strategy;
  Outcome one{strategy,
              plan.usage,
              within(problem, plan.usage),
              binding(problem, plan),
              plan.throughput,
              {},
              plan.sent,
              {}};
  if (problem.model.has_experts() && problem.ranks() > 1) {
    one.experts = experts_traffic(problem, strategy, plan.lowered.schedule.schedule());
  }
  if (!one.fits) {
    one.binding = plan.usage.device > problem.device_budget ? Binding::device : Binding::host;
  }
  const auto sequences = static_cast<double>(strategy.mesh.replicas * strategy.micro_batches);
  std::transform(one.throughput.begin(), one.throughput.end(), one.sequence_seconds.begin(),
                 [&](const Throughput& throughput) { return throughput.step_seconds / sequences; });
  return one;
}

}  // namespace fpdt
