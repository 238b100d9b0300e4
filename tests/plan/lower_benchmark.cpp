// The stages of planning Llama 3 70B at 4M tokens on 32 GPUs in 64K chunks, each alone and all
// together. Run: build/release/tests/plan/lower_benchmark
#include <benchmark/benchmark.h>

#include "fpdt/plan/lower.h"
#include "fpdt/plan/lowering/lower_ops.h"
#include "fpdt/schedule/depend.h"

#include "problems.h"

namespace fpdt {
namespace {

Problem llama_70b() { return test::llama3_70b(std::int64_t{1} << 22); }

double ops_of(const Schedule& schedule) {
  double ops = 0;
  for (const auto* calls : {&schedule.train, &schedule.evaluate}) {
    for (const Call& call : *calls) {
      ops += static_cast<double>(schedule.blocks[static_cast<std::size_t>(call.block)].ops.size());
    }
  }
  return ops;
}

void whole(benchmark::State& state) {
  const Problem problem = llama_70b();
  const Strategy strategy = default_strategy(problem);
  for (auto _ : state) benchmark::DoNotOptimize(lower(problem, strategy));
}
BENCHMARK(whole)->Name("lower, depend, place, verify")->Unit(benchmark::kMillisecond);

void method(benchmark::State& state) {
  const Problem problem = llama_70b();
  const Strategy strategy = default_strategy(problem);
  for (auto _ : state) benchmark::DoNotOptimize(lower_ops(problem, strategy));
}
BENCHMARK(method)->Name("lower")->Unit(benchmark::kMillisecond);

void edges(benchmark::State& state) {
  const Problem problem = llama_70b();
  Schedule schedule = lower_ops(problem, default_strategy(problem));
  for (auto _ : state) depend(schedule);
}
BENCHMARK(edges)->Name("depend")->Unit(benchmark::kMillisecond);

void placing(benchmark::State& state) {
  const Problem problem = llama_70b();
  Schedule schedule = lower_ops(problem, default_strategy(problem));
  depend(schedule);
  for (auto _ : state) benchmark::DoNotOptimize(place(schedule));
}
BENCHMARK(placing)->Name("place")->Unit(benchmark::kMillisecond);

void verifying(benchmark::State& state) {
  const Problem problem = llama_70b();
  const Lowered lowered = lower(problem, default_strategy(problem));
  for (auto _ : state) benchmark::DoNotOptimize(verify(lowered.schedule.schedule()));
  state.counters["ops/s"] = benchmark::Counter(ops_of(lowered.schedule.schedule()),
                                               benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(verifying)->Name("expand and verify")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace fpdt

BENCHMARK_MAIN();
