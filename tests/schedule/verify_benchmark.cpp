// Speed of the verifier: ops per second over the expansion of an artificial schedule with large
// blocks.
#include <benchmark/benchmark.h>

#include "fpdt/schedule/depend.h"
#include "fpdt/schedule/verify.h"

#include "tiny.h"

namespace {

// A pipeline of four ops per chunk on four lanes, through rings: fetch, compute, accumulate, spill.
fpdt::Schedule pipeline(std::int64_t ops, std::int32_t calls) {
  fpdt::test::Tiny tiny;
  tiny.buffer("in", 3).buffer("out", 2).buffer("sum", 2).buffer("host", 64);
  const std::int64_t chunks = ops / 4;
  tiny.block("layer", {{0, chunks}, {1, chunks}, {2, chunks}, {3, chunks}});
  for (std::int64_t i = 0; i < chunks; ++i) {
    const std::string n = std::to_string(i);
    tiny.fill("fetch." + n, 1, "in[+" + n + "]");
    tiny.copy("compute." + n, 0, "in[+" + n + "]", "out[+" + n + "]");
    tiny.copy("sum." + n, 2, "out[+" + n + "]", "sum[+" + n + "]");
    tiny.copy("spill." + n, 3, "sum[+" + n + "]", "host[+" + n + "]");
  }
  for (std::int32_t call = 0; call < calls; ++call) tiny.call("layer", call);
  fpdt::depend(tiny.schedule);
  return tiny.schedule;
}

void verify_pipeline(benchmark::State& state) {
  const fpdt::Schedule schedule =
      pipeline(state.range(0), static_cast<std::int32_t>(state.range(1)));
  for (auto _ : state) {
    if (!fpdt::verify(schedule).empty()) state.SkipWithError("the schedule is not safe");
  }
  state.SetItemsProcessed(state.iterations() * state.range(0) * state.range(1));
}
BENCHMARK(verify_pipeline)->Args({100000, 40})->Args({10000, 400})->Unit(benchmark::kMillisecond);

void depend_pipeline(benchmark::State& state) {
  fpdt::Schedule schedule = pipeline(state.range(0), static_cast<std::int32_t>(state.range(1)));
  for (auto _ : state) fpdt::depend(schedule);
  state.SetItemsProcessed(state.iterations() * state.range(0) * state.range(1));
}
BENCHMARK(depend_pipeline)->Args({100000, 40})->Args({10000, 400})->Unit(benchmark::kMillisecond);

}  // namespace
