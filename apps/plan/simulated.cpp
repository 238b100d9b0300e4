// Simulates the step of a schedule file.
#include "plan/simulated.h"

#include <utility>

#include <fmt/format.h>

#include "fpdt/io/cluster_file.h"
#include "fpdt/plan/fit.h"

#include "common/share.h"

namespace fpdt {

Simulated::Simulated(const std::string& path, const std::string& cluster, std::int64_t traced_ops)
    : file_(load_schedule_file(path)), program_(schedule()) {
  if (!cluster.empty()) move_to(load_cluster(find_shared(Shelf::clusters, "--cluster", cluster)));
  SimulationOptions options;
  options.trace_call = calls_to_trace(schedule(), traced_ops);
  simulation_ =
      simulate(schedule(), schedule().train, Machine(problem().cluster, RateEnd::typical), options);
}

// Chunks stay as they were lowered.
void Simulated::move_to(const ClusterSpec& cluster) {
  Problem& problem = file_.problem;
  const std::int64_t row_multiple = problem.cluster.row_multiple;
  problem.cluster = with_devices(cluster, problem.ranks());
  problem.cluster.row_multiple = row_multiple;
  problem.device_budget = cluster.device_memory;
  problem.host_budget = problem.cluster.host_available();
}

TimelinePicture Simulated::picture() const {
  const ClusterSpec& cluster = problem().cluster;
  TimelinePicture picture;
  picture.run = run();
  picture.title = fmt::format("{}, {} tokens on {}", problem().model.name,
                              format_tokens(problem().seq_len), cluster.name);
  picture.subtitle = in_words(problem(), strategy());
  picture.outside =
      outside_bytes(problem(), strategy(), placed_bytes(schedule(), MemorySpace::host_pinned));
  picture.device_budget = problem().device_budget;
  picture.host_budget = Bytes{problem().host_budget.value / cluster.devices_per_node};
  picture.zoom = middle_call(picture.run);
  const Throughput now = throughput(problem(), strategy(), simulation_);
  picture.rates = {{"tokens/s per GPU", format_throughput(now.tokens_per_second_per_gpu)},
                   {"MFU, causal", fmt::format("{:.1f} %", 100 * now.mfu_causal)}};
  return picture;
}

std::vector<Trace> Simulated::ranks_together() const {
  SimulationOptions options;
  options.trace_call = [](std::size_t) { return true; };
  const Machine machine(problem().cluster, RateEnd::typical);
  std::vector<Trace> traces;
  for (Simulation& one : simulate_together(schedule(), schedule().train, machine, options)) {
    traces.push_back(std::move(one.trace));
    traces.back().source = "all together";
  }
  return traces;
}

}  // namespace fpdt
