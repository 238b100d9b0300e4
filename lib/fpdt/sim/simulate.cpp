// Converts demands to ticks, runs the clock, and converts ticks to nanoseconds.
#include "fpdt/sim/simulate.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/math.h"
#include "fpdt/sim/clock.h"
#include "fpdt/sim/imbalance.h"

namespace fpdt {
namespace {

using Demands = std::vector<std::vector<Demand>>;

std::vector<std::int64_t> calls_of_blocks(const Schedule& schedule,
                                          const std::vector<Call>& calls) {
  std::vector<std::int64_t> count(schedule.blocks.size(), 0);
  for (const Call& call : calls) ++count[index(call.block)];
  return count;
}

// A tick is 2^shift picoseconds.
struct Ticks {
  std::vector<std::vector<std::int64_t>> of_ops;
  int shift = 0;

  // Rounds to the nearest; also works for times beyond the range of picoseconds.
  [[nodiscard]] std::int64_t nanoseconds(std::int64_t ticks) const {
    const std::int64_t unit = std::int64_t{1} << shift;
    return ticks / 1000 * unit + (ticks % 1000 * unit + 500) / 1000;
  }
};

// `least_shift`: of ranks whose times are counted in the same ticks.
Ticks ticks_of(const Machine& machine, const Demands& demands,
               const std::vector<std::int64_t>& calls, int least_shift = 0) {
  // Even if all ops run one after another, each slowed down 16 times, this stays far from overflow.
  constexpr double kMostOfStep = static_cast<double>(std::int64_t{1} << 58);
  // Nanoseconds reach 292 years. If all ops are slowed down 16 times, a sixteenth of that remains.
  constexpr double kMostPicoseconds = 16 * 3.15e19;
  Ticks ticks;
  double longest = 1;
  double sum = 0;
  for (std::size_t b = 0; b < demands.size(); ++b) {
    std::vector<std::int64_t>& of_block = ticks.of_ops.emplace_back();
    double block = 0;
    for (const Demand& demand : demands[b]) {
      of_block.push_back(machine.picoseconds(demand));
      block += static_cast<double>(of_block.back());
      longest = std::max(longest, static_cast<double>(of_block.back()));
    }
    sum += block * static_cast<double>(calls[b]);
  }
  if (sum > kMostPicoseconds) {
    throw InputError("the step takes more than 16 years at the rates of the cluster");
  }
  const auto too_fine = [&](int shift) {
    return std::ldexp(longest, -shift) > static_cast<double>(kMostTicks) ||
           std::ldexp(sum, -shift) > kMostOfStep;
  };
  ticks.shift = least_shift;
  while (too_fine(ticks.shift)) ++ticks.shift;
  if (ticks.shift == 0) return ticks;
  for (auto& block : ticks.of_ops) {
    for (std::int64_t& op : block) op = std::max<std::int64_t>(1, op >> ticks.shift);
  }
  return ticks;
}

PaceTable paces(const Machine& machine) {
  PaceTable table{};
  for (std::size_t kind = 0; kind < table.size(); ++kind) {
    for (unsigned active = 0; active < table[kind].size(); ++active) {
      table[kind][active] = machine.pace(static_cast<LaneKind>(kind), active);
    }
  }
  return table;
}

// Counts the numbers that do not depend on time.
void count(Simulation& simulation, const Demands& demands, const std::vector<std::int64_t>& calls) {
  simulation.kinds.resize(kBodyNames.size());
  for (std::size_t b = 0; b < demands.size(); ++b) {
    for (const Demand& demand : demands[b]) {
      simulation.ops += calls[b];
      simulation.kinds[index(demand.kind)].ops += calls[b];
      simulation.flops[static_cast<std::size_t>(demand.work)] +=
          demand.flops * static_cast<double>(calls[b]);
    }
  }
}

Trace trace_of(const Program& program, const Ticks& ticks, std::vector<TickSpan> spans) {
  Trace trace;
  trace.source = "simulated";
  for (const Lane& lane : program.lanes) {
    trace.lanes.push_back(fmt::format("{}.{}", word(lane.kind), lane.index));
  }
  if (spans.empty()) return trace;
  std::vector<std::int32_t> first_op;
  for (const Block& block : program.schedule->blocks) {
    first_op.push_back(static_cast<std::int32_t>(trace.ops.size()));
    for (const Op& op : block.ops) trace.ops.push_back(block.name + "." + op.name);
  }
  std::sort(spans.begin(), spans.end(), [](const TickSpan& a, const TickSpan& b) {
    return std::pair(a.call, a.op) < std::pair(b.call, b.op);
  });
  for (const TickSpan& span : spans) {
    trace.spans.push_back({first_op[index(span.block)] + span.op, span.lane, span.call,
                           ticks.nanoseconds(span.begin), ticks.nanoseconds(span.end)});
  }
  return trace;
}

std::vector<bool> traced_calls(const SimulationOptions& options, std::size_t calls) {
  std::vector<bool> traced;
  for (std::size_t call = 0; options.trace_call && call < calls; ++call) {
    traced.push_back(options.trace_call(call));
  }
  return traced;
}

// Converts the answer of one rank from ticks to nanoseconds.
Simulation simulation_of(const Program& program, const Demands& demands,
                         const std::vector<std::int64_t>& call_counts, const Ticks& ticks,
                         ClockAnswer answer) {
  Simulation simulation;
  count(simulation, demands, call_counts);
  simulation.nanoseconds = ticks.nanoseconds(answer.end);
  simulation.simulated = answer.simulated;
  for (std::size_t kind = 0; kind < simulation.busy.size(); ++kind) {
    simulation.busy[kind] = ticks.nanoseconds(answer.lane_busy[kind]);
  }
  for (std::size_t kind = 0; kind < simulation.kinds.size(); ++kind) {
    simulation.kinds[kind].nanoseconds = ticks.nanoseconds(answer.kind_busy[kind]);
  }
  std::int64_t last = 0;
  for (const ClockAnswer::CallSpan& span : answer.calls) {
    const bool empty = span.begin < 0;
    if (!empty) last = ticks.nanoseconds(span.end);
    simulation.calls.push_back({empty ? last : ticks.nanoseconds(span.begin), last});
  }
  simulation.trace = trace_of(program, ticks, std::move(answer.spans));
  return simulation;
}

Partners partners_of(const Schedule& schedule, std::int64_t rank) {
  Partners partners;
  for (const Block& block : schedule.blocks) {
    partners.emplace_back(block.ops.size());
    for (std::size_t i = 0; i < block.ops.size(); ++i) {
      const Body& body = block.ops[i].body;
      if (!is_collective(body)) continue;
      const Group& group = group_of(schedule, body);
      const std::int64_t first = group.first.at(rank);
      const std::int64_t mine = (rank - first) / group.stride;
      const std::int64_t hop = hop_of(body);
      for (std::int64_t member = 0; member < group.size; ++member) {
        const bool meets = hop == 0 || source_of(hop, mine, group.size) == member ||
                           source_of(hop, member, group.size) == mine;
        if (member == mine || !meets) continue;
        partners.back()[i].push_back(static_cast<std::int32_t>(first + member * group.stride));
      }
    }
  }
  return partners;
}

}  // namespace

Simulation simulate(const Schedule& schedule, const std::vector<Call>& calls,
                    const Machine& machine, const SimulationOptions& options) {
  return simulate(Program(schedule), calls, machine, options);
}

Simulation simulate(const Program& program, const std::vector<Call>& calls, const Machine& machine,
                    const SimulationOptions& options) {
  const Schedule& schedule = *program.schedule;
  const std::vector<std::int64_t> call_counts = calls_of_blocks(schedule, calls);
  const Imbalance imbalance = imbalance_of(schedule, call_counts);
  const Demands all = demands(schedule, imbalance.heaviest);
  Ticks ticks = ticks_of(machine, all, call_counts);
  ClockQuestion question{program, calls, std::move(ticks.of_ops), paces(machine)};
  question.hazards = options.waits == SimulationOptions::Waits::hazards;
  question.skip_periods = options.skip_periods;
  question.traced = traced_calls(options, calls.size());
  Simulation simulation = simulation_of(program, all, call_counts, ticks, run_clock(question));
  for (std::size_t work = 0; work < kWorks; ++work) {
    simulation.flops[work] -= imbalance.spare[work];
  }
  simulation.trace.rank = imbalance.heaviest;
  return simulation;
}

std::vector<Simulation> simulate_together(const Schedule& schedule, const std::vector<Call>& calls,
                                          const Machine& machine,
                                          const SimulationOptions& options) {
  FPDT_ASSERT(options.waits == SimulationOptions::Waits::edges);
  const Program program(schedule);
  const std::vector<std::int64_t> call_counts = calls_of_blocks(schedule, calls);
  Ticks ticks;
  for (std::int64_t rank = 0; rank < schedule.ranks; ++rank) {
    ticks.shift = ticks_of(machine, demands(schedule, rank), call_counts, ticks.shift).shift;
  }
  std::vector<ClockQuestion> questions;
  std::vector<Partners> partners;
  for (std::int64_t rank = 0; rank < schedule.ranks; ++rank) {
    Ticks own = ticks_of(machine, demands(schedule, rank), call_counts, ticks.shift);
    questions.push_back({program, calls, std::move(own.of_ops), paces(machine)});
    questions.back().traced = traced_calls(options, calls.size());
    partners.push_back(partners_of(schedule, rank));
  }
  std::vector<Simulation> simulations;
  for (ClockAnswer& answer : run_clocks(questions, partners)) {
    const std::int64_t rank = std::ssize(simulations);
    simulations.push_back(
        simulation_of(program, demands(schedule, rank), call_counts, ticks, std::move(answer)));
    simulations.back().trace.rank = rank;
  }
  return simulations;
}

std::int64_t lower_bound(const Schedule& schedule, const std::vector<Call>& calls,
                         const Machine& machine) {
  const std::vector<std::int64_t> call_counts = calls_of_blocks(schedule, calls);
  const std::int64_t rank = imbalance_of(schedule, call_counts).heaviest;
  const Ticks ticks = ticks_of(machine, demands(schedule, rank), call_counts);
  std::vector<std::pair<Lane, std::int64_t>> lanes;
  std::int64_t most = 0;
  for (std::size_t b = 0; b < schedule.blocks.size(); ++b) {
    for (std::size_t i = 0; i < schedule.blocks[b].ops.size(); ++i) {
      const Lane lane = schedule.blocks[b].ops[i].lane;
      auto found = std::find_if(lanes.begin(), lanes.end(),
                                [lane](const auto& one) { return one.first == lane; });
      if (found == lanes.end()) found = lanes.insert(found, {lane, 0});
      found->second += ticks.of_ops[b][i] * call_counts[b];
      most = std::max(most, found->second);
    }
  }
  return ticks.nanoseconds(most);
}

}  // namespace fpdt
