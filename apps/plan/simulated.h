// A schedule file with the question it answers and its simulated step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fpdt/io/schedule_file.h"
#include "fpdt/plan/plan.h"
#include "fpdt/report/timeline.h"

namespace fpdt {

class Simulated {
 public:
  // Loads, proves and simulates. `cluster`: a file whose rates replace those that the schedule was
  // planned with; empty: its own. Steps of more than `traced_ops` ops are traced in part.
  Simulated(const std::string& path, const std::string& cluster, std::int64_t traced_ops);

  [[nodiscard]] const Problem& problem() const { return file_.problem; }
  [[nodiscard]] const Strategy& strategy() const { return file_.strategy; }
  [[nodiscard]] const Schedule& schedule() const { return file_.schedule.schedule(); }
  [[nodiscard]] const Program& program() const { return program_; }
  [[nodiscard]] const Simulation& simulation() const { return simulation_; }
  [[nodiscard]] TracedRun run() const { return {&program_, &schedule().train, &simulation_.trace}; }
  // With title, capacities and a call to look at closely.
  [[nodiscard]] TimelinePicture picture() const;
  // Every op of the step on all ranks, which wait for each other.
  [[nodiscard]] std::vector<Trace> ranks_together() const;

 private:
  void move_to(const ClusterSpec& cluster);

  ScheduleFile file_;
  Program program_;
  Simulation simulation_;
};

}  // namespace fpdt
