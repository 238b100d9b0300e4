// A schedule file with the question it answers and its simulated step.
#pragma once

#include <cstdint>
#include <string>

#include "fpdt/plan/plan.h"
#include "fpdt/report/timeline.h"

namespace fpdt {

class Simulated {
 public:
  // Loads, proves and simulates. `cluster`: a file whose rates replace those that the schedule was
  // planned with; empty: its own. Steps of more than `traced_ops` ops are traced in part.
  Simulated(const std::string& path, const std::string& cluster, std::int64_t traced_ops);

  [[nodiscard]] const Problem& problem() const { return problem_; }
  [[nodiscard]] const Strategy& strategy() const { return strategy_; }
  [[nodiscard]] const Schedule& schedule() const { return schedule_.schedule(); }
  [[nodiscard]] const Program& program() const { return program_; }
  [[nodiscard]] const Simulation& simulation() const { return simulation_; }
  [[nodiscard]] TracedRun run() const {
    return {&program_, &schedule_.schedule().train, &simulation_.trace};
  }
  // With title, capacities and a call to look at closely.
  [[nodiscard]] TimelinePicture picture() const;

 private:
  void move_to(const ClusterSpec& cluster);

  VerifiedSchedule schedule_;
  Program program_;
  Problem problem_;
  Strategy strategy_;
  Simulation simulation_;
};

}  // namespace fpdt
