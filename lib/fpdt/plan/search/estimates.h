// Times of steps, each simulated once in a search.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "fpdt/cost/machine.h"
#include "fpdt/plan/lowering/lower_ops.h"
#include "fpdt/sim/simulate.h"
#include "fpdt/spec/strategy.h"

namespace fpdt {

// The times of steps. They do not depend on budgets, so all passes share them.
class Estimates {
 public:
  explicit Estimates(const Problem& problem)
      : problem_(problem), machine_(problem.cluster, RateEnd::typical) {}

  const Machine& machine() const { return machine_; }
  std::int64_t simulated() const { return static_cast<std::int64_t>(known_.size()); }

  // The time of a step by what versions demand, without edges: a third of the work. Edges are
  // static, so now and then they make a step slower than this.
  std::int64_t nanoseconds(const Strategy& strategy) {
    for (const auto& [known, nanoseconds] : known_) {
      if (known == strategy) return nanoseconds;
    }
    const Schedule schedule = lower_without_states(problem_, strategy);
    SimulationOptions options;
    options.waits = SimulationOptions::Waits::hazards;
    known_.emplace_back(strategy,
                        simulate(schedule, schedule.train, machine_, options).nanoseconds);
    return known_.back().second;
  }

 private:
  const Problem& problem_;
  Machine machine_;
  std::vector<std::pair<Strategy, std::int64_t>> known_;
};

}  // namespace fpdt
