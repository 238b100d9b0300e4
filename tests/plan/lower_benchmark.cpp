// The stages of planning Llama 3 70B at 4M tokens on 32 GPUs in 64K chunks, each alone and all
// together. Run: build/release/tests/plan/lower_benchmark
#include <benchmark/benchmark.h>

#include "fpdt/plan/lower.h"
#include "fpdt/plan/methods/fpdt.h"
#include "fpdt/schedule/depend.h"

namespace fpdt {
namespace {

Problem llama_70b() {
  Problem problem;
  ModelSpec& model = problem.model;
  model.name = "llama3-70b";
  model.layers = 80;
  model.hidden = 8192;
  model.heads = 64;
  model.kv_heads = 8;
  model.head_dim = 128;
  model.feed_forward = 28672;
  model.vocabulary = 128256;
  model.rotary.fraction = 1;
  problem.cluster.nodes = 8;
  problem.cluster.devices_per_node = 4;
  problem.cluster.device_memory = problem.cluster.host_memory = Bytes{std::int64_t{1} << 42};
  problem.cluster.row_multiple = 128;
  problem.seq_len = std::int64_t{1} << 22;
  return problem;
}

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
  for (auto _ : state) benchmark::DoNotOptimize(lower_fpdt(problem, strategy));
}
BENCHMARK(method)->Name("lower")->Unit(benchmark::kMillisecond);

void edges(benchmark::State& state) {
  const Problem problem = llama_70b();
  Schedule schedule = lower_fpdt(problem, default_strategy(problem));
  for (auto _ : state) depend(schedule);
}
BENCHMARK(edges)->Name("depend")->Unit(benchmark::kMillisecond);

void placing(benchmark::State& state) {
  const Problem problem = llama_70b();
  Schedule schedule = lower_fpdt(problem, default_strategy(problem));
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
