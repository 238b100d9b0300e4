// Speed of making weights, next to plain writes to the same memory by the same threads:
//
//   weights_benchmark --benchmark_repetitions=5 --benchmark_enable_random_interleaving=true
//
// `GB/s` counts the bytes that are in memory at the end. `ns` is the time per element with all
// threads working. `cached` avoids memory: each thread repeats 16 Ki elements.
#include <algorithm>
#include <cstring>
#include <vector>

#include <benchmark/benchmark.h>

#include "fpdt/cpu/pool.h"
#include "fpdt/spec/initial.h"

namespace fpdt {
namespace {

constexpr std::int64_t kElements = 1 << 26;
constexpr std::int64_t kTask = 1 << 14;

void rates(benchmark::State& state) {
  const double elements = static_cast<double>(kElements) * static_cast<double>(state.iterations());
  state.counters["GB/s"] = benchmark::Counter(4e-9 * elements, benchmark::Counter::kIsRate);
  state.counters["ns"] = benchmark::Counter(
      1e-9 * elements, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

// Calls write(first element, target) for tasks of kTask elements on all threads.
template <class Write>
void on_threads(benchmark::State& state, bool cached, Write write) {
  Pool pool(static_cast<std::int32_t>(state.range(0)));
  std::vector<float> values(static_cast<std::size_t>(cached ? pool.size() * kTask : kElements));
  for (auto _ : state) {
    pool.for_each(kElements / kTask, [&](std::int64_t task, std::int32_t worker) {
      const std::int64_t at = (cached ? worker : task) * kTask;
      write(task * kTask, std::span(values).subspan(static_cast<std::size_t>(at), kTask));
    });
    benchmark::ClobberMemory();
  }
  rates(state);
}

void make(std::int64_t first, std::span<float> values) {
  static const TensorSpec tensor{"w", {kElements}, true, 0.02, 0};
  initial_values(1, 2, first, tensor, values);
}

void initial_weights(benchmark::State& state) { on_threads(state, false, make); }
void initial_weights_cached(benchmark::State& state) { on_threads(state, true, make); }
void plain_writes(benchmark::State& state) {
  on_threads(state, false, [](std::int64_t first, std::span<float> values) {
    std::memset(values.data(), static_cast<int>(first), values.size_bytes());
  });
}

BENCHMARK(initial_weights)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK(initial_weights_cached)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK(plain_writes)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

}  // namespace
}  // namespace fpdt

BENCHMARK_MAIN();
