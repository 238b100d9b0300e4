// From a schedule file to its simulated step.
#include "simulated.h"

#include <utility>

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
  if (!cluster.empty()) {
    ClusterSpec other = load_cluster(cluster);
    if (other.devices() != problem_.ranks()) other = with_devices(other, problem_.ranks());
    problem_.cluster = std::move(other);
  }
  const Machine machine(problem_.cluster, Case::typical);
  SimulationOptions options;
  options.trace_call = telling_calls(schedule_.schedule(), traced_ops);
  simulation_ = simulate(schedule_.schedule(), schedule_.schedule().train, machine, options);
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
