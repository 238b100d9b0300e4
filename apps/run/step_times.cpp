// A simulation beside the last recorded steps.
#include "run/step_times.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "fpdt/base/error.h"
#include "fpdt/io/cluster_file.h"
#include "fpdt/io/file.h"
#include "fpdt/plan/fit.h"
#include "fpdt/plan/plan.h"
#include "fpdt/plan/search/levers.h"
#include "fpdt/report/perfetto.h"
#include "fpdt/sim/simulate.h"

#include "common/share.h"

namespace fpdt {
namespace {

constexpr std::size_t kStepsKept = 5;
constexpr std::int64_t kHeld = 1000000;  // ops that an HTML file holds one by one

Trace predict_step(const Schedule& schedule, const std::string& cluster_path) {
  const ClusterSpec cluster = load_cluster(find_shared(Shelf::clusters, "--machine", cluster_path));
  if (cluster.devices() != schedule.ranks) {
    throw InputError(fmt::format(
        "{}: its rates are for {} ranks, but the schedule has {}; measure with fpdt-run bench "
        "--ranks {}",
        cluster_path, cluster.devices(), schedule.ranks, schedule.ranks));
  }
  SimulationOptions options;
  options.trace_call = [](std::size_t) { return true; };
  return simulate(schedule, schedule.train, Machine(cluster, RateEnd::typical), options).trace;
}

}  // namespace

StepTimes::StepTimes(const Job& job, const std::string& cluster_path)
    : job_(job),
      schedule_(job.schedule.schedule()),
      predicted_(predict_step(schedule_, cluster_path)) {}

void StepTimes::keep(std::vector<Trace> traces) {
  if (steps_.size() == kStepsKept) steps_.erase(steps_.begin());
  steps_.push_back(std::move(traces));
}

const std::vector<Trace>& StepTimes::middle() const {
  std::vector<const std::vector<Trace>*> order;
  for (const std::vector<Trace>& step : steps_) order.push_back(&step);
  const auto at = order.begin() + static_cast<std::ptrdiff_t>(order.size() / 2);
  std::nth_element(order.begin(), at, order.end(),
                   [](const auto* a, const auto* b) { return duration(*a) < duration(*b); });
  return **at;
}

Comparison StepTimes::comparison() const { return compare(schedule_, predicted_, middle()); }

void StepTimes::draw(const std::string& path, const PictureFlags& look) const {
  const Program program(schedule_);
  std::vector<TracedRun> runs{{&program, &schedule_.train, &predicted_}};
  for (const Trace& rank : middle()) runs.push_back({&program, &schedule_.train, &rank});
  if (path.ends_with(".json")) return write_file_atomically(path, perfetto_json(std::move(runs)));
  put_on_one_clock(runs);
  TimelinePicture picture;
  picture.run = runs.front();
  picture.measured.assign(runs.begin() + 1, runs.end());
  picture.title =
      fmt::format("{}, {} tokens on {}: measured over predicted", job_.problem.model.name,
                  format_tokens(job_.problem.seq_len), job_.problem.cluster.name);
  picture.subtitle = in_words(job_.problem, job_.strategy);
  picture.outside =
      outside_bytes(job_.problem, job_.strategy, placed_bytes(schedule_, MemorySpace::host_pinned));
  picture.device_budget = job_.problem.device_budget;
  picture.host_budget =
      Bytes{job_.problem.host_budget.value / job_.problem.cluster.devices_per_node};
  picture.zoom = middle_call(picture.run);
  const auto rows = std::ssize(picture.measured) + 1;
  picture.holds = calls_to_trace(schedule_, kHeld / rows);
  write_picture(path, picture, look);
}

}  // namespace fpdt
