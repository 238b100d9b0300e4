// Makes a plan: lowers, simulates, and derives the throughput.
#include "fpdt/plan/plan.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "fpdt/spec/layer_places.h"

namespace fpdt {
Plan make_plan(const Problem& problem, const Strategy& strategy, std::string problem_section,
               std::int64_t traced_ops) {
  Lowered lowered = lower(problem, strategy, std::move(problem_section));
  const Usage need = usage(problem, strategy, lowered.placement);
  Plan plan{strategy, std::move(lowered), need, {}, {}, {}};
  const Schedule& schedule = plan.lowered.schedule.schedule();
  plan.sent = traffic(schedule, schedule.train, 0, problem.cluster.devices_per_node);
  const Program program(schedule);
  for (const RateEnd which : {RateEnd::slow, RateEnd::typical, RateEnd::fast}) {
    const Machine machine(problem.cluster, which);
    SimulationOptions options;
    if (which == RateEnd::typical) options.trace_call = calls_to_trace(schedule, traced_ops);
    Simulation simulation = simulate(program, schedule.train, machine, options);
    plan.throughput[static_cast<std::size_t>(which)] = throughput(problem, strategy, simulation);
    if (which == RateEnd::typical) plan.simulation = std::move(simulation);
  }
  return plan;
}

std::function<bool(std::size_t)> calls_to_trace(const Schedule& schedule, std::int64_t traced_ops) {
  std::int64_t ops = 0;
  std::vector<std::vector<std::size_t>> calls_of(schedule.blocks.size());
  for (std::size_t i = 0; i < schedule.train.size(); ++i) {
    const auto block = static_cast<std::size_t>(schedule.train[i].block);
    ops += static_cast<std::int64_t>(schedule.blocks[block].ops.size());
    calls_of[block].push_back(i);
  }
  std::vector<bool> chosen(schedule.train.size(), ops <= traced_ops);
  for (const std::vector<std::size_t>& calls : calls_of) {
    if (calls.empty()) continue;
    for (const std::size_t i : {calls.front(), calls[calls.size() / 2], calls.back()}) {
      chosen[i] = true;
    }
  }
  return [chosen](std::size_t call) { return chosen[call]; };
}

std::optional<Need> need_of_shorter_segments(const Problem& problem, const Strategy& strategy) {
  const std::int64_t longest = longest_segment(strategy);
  if (longest == 1) return std::nullopt;
  Strategy shorter = strategy;
  for (const std::vector<std::int64_t>& segments : segment_shapes(problem.model.layers)) {
    Strategy other = strategy;
    other.segments = segments;
    if (longest_segment(other) < longest) shorter.segments = segments;
  }
  const Usage need = usage(problem, with_most_stored(problem, shorter));
  if (need.host_node > problem.host_budget) {
    return Need{Binding::host, need.host_node, problem.host_budget};
  }
  if (need.device > problem.device_budget) {
    return Need{Binding::device, need.device, problem.device_budget};
  }
  return std::nullopt;
}

Binding binding(const Problem& problem, const Plan& plan) {
  const auto share = [](Bytes used, Bytes budget) {
    return static_cast<double>(used.value) /
           static_cast<double>(std::max<std::int64_t>(budget.value, 1));
  };
  constexpr double kTight = 0.9;
  const double device = share(plan.usage.device, problem.device_budget);
  const double host = share(plan.usage.host_node, problem.host_budget);
  if (std::max(device, host) > kTight) return host >= device ? Binding::host : Binding::device;
  if (const auto need = need_of_shorter_segments(problem, plan.strategy)) return need->memory;
  const auto& busy = plan.simulation.busy;
  const auto lane =
      static_cast<LaneKind>(std::max_element(busy.begin(), busy.end()) - busy.begin());
  if (lane == LaneKind::compute) return Binding::compute;
  return lane == LaneKind::comm ? Binding::collectives : Binding::copies;
}

}  // namespace fpdt
