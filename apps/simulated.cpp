// From a schedule file to its simulated step.
#include "simulated.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fpdt/io/cluster_file.h"
#include "fpdt/io/problem_json.h"
#include "fpdt/io/schedule_json.h"

namespace fpdt {

Simulated::Simulated(const std::string& path, const std::string& cluster, std::int64_t traced_ops)
    : schedule_(verified(load_schedule(path))), program_(schedule_.schedule()) {
  if (schedule_.schedule().problem.empty()) {
    throw InputError(fmt::format(
        "{}: has no problem section, so its machine is unknown; write it with fpdt-plan", path));
  }
  std::tie(problem_, strategy_) = parse_problem(schedule_.schedule().problem);
  const std::vector<Diagnostic> findings = check(problem_, strategy_);
  if (!findings.empty()) {
    throw InputError(fmt::format("{}: {}", path, format_diagnostics(findings)));
  }
  if (problem_.ranks() != schedule_.schedule().ranks) {
    throw InputError(fmt::format("{}: is of {} ranks, its problem of {}", path,
                                 schedule_.schedule().ranks, problem_.ranks()));
  }
  if (!cluster.empty()) move_to(load_cluster(cluster));
  const Machine machine(problem_.cluster, RateEnd::typical);
  SimulationOptions options;
  options.trace_call = telling_calls(schedule_.schedule(), traced_ops);
  simulation_ = simulate(schedule_.schedule(), schedule_.schedule().train, machine, options);
}

// Chunks stay as they were lowered.
void Simulated::move_to(const ClusterSpec& cluster) {
  const std::int64_t row_multiple = problem_.cluster.row_multiple;
  problem_.cluster = with_devices(cluster, problem_.ranks());
  problem_.cluster.row_multiple = row_multiple;
  problem_.device_budget = cluster.device_memory;
  problem_.host_budget = cluster.host_memory;
}

TimelinePicture Simulated::picture() const {
  TimelinePicture picture;
  picture.run = run();
  picture.title = fmt::format("{}, {} tokens on {}", problem_.model.name,
                              format_tokens(problem_.seq_len), problem_.cluster.name);
  picture.subtitle = in_words(problem_, strategy_);
  picture.device_capacity = problem_.device_budget - problem_.cluster.outside_bytes();
  picture.host_capacity = Bytes{problem_.host_budget.value / problem_.cluster.devices_per_node};
  picture.zoom = middle_call(picture.run);
  return picture;
}

}  // namespace fpdt
