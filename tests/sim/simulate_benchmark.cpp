// Simulates Llama 3 70B at 4M tokens on 32 A100 in 64K chunks: with every op, and with periods left
// out. Run: build/release/tests/sim/simulate_benchmark
#include <benchmark/benchmark.h>

#include "fpdt/plan/lowering/lower_ops.h"
#include "fpdt/schedule/depend.h"
#include "fpdt/sim/simulate.h"

#include "choices.h"
#include "problems.h"

namespace fpdt {
namespace {

Problem llama_70b() {
  Problem problem = test::llama3_70b(std::int64_t{1} << 22);
  problem.cluster.rates = test::a100_rates();
  return problem;
}

void run(benchmark::State& state, SimulationOptions::Waits waits, bool skip) {
  const Problem problem = llama_70b();
  const Machine machine(problem.cluster, RateEnd::typical);
  Schedule schedule = lower_ops(problem, default_strategy(problem));
  SimulationOptions options;
  options.waits = waits;
  options.skip_periods = skip;
  if (waits == SimulationOptions::Waits::edges) depend(schedule);
  Simulation simulation;
  for (auto _ : state) simulation = simulate(schedule, schedule.train, machine, options);
  state.counters["ops/s"] = benchmark::Counter(static_cast<double>(simulation.ops),
                                               benchmark::Counter::kIsIterationInvariantRate);
  state.counters["simulated"] = static_cast<double>(simulation.simulated);
  state.counters["seconds"] = static_cast<double>(simulation.nanoseconds) * 1e-9;
}

constexpr auto kEdges = SimulationOptions::Waits::edges;
constexpr auto kHazards = SimulationOptions::Waits::hazards;
BENCHMARK_CAPTURE(run, edges, kEdges, false)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(run, hazards, kHazards, false)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(run, edges_by_periods, kEdges, true)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(run, hazards_by_periods, kHazards, true)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace fpdt

BENCHMARK_MAIN();
