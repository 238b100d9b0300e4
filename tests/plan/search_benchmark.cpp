// The time of a whole search on one core.
#include <benchmark/benchmark.h>

#include "fpdt/plan/plan.h"

#include "problems.h"

namespace fpdt {
namespace {

void search_and_plan(benchmark::State& state, const Problem& problem) {
  for (auto _ : state) {
    const SearchResult found = search(problem);
    benchmark::DoNotOptimize(make_plan(problem, found.best->strategy));
  }
}

void eight_billion_two_million_tokens(benchmark::State& state) {
  search_and_plan(state, test::llama3_8b(std::int64_t{1} << 21));
}
BENCHMARK(eight_billion_two_million_tokens)->Unit(benchmark::kMillisecond);

void seventy_billion_four_million_tokens(benchmark::State& state) {
  search_and_plan(state, test::llama3_70b(std::int64_t{1} << 22));
}
BENCHMARK(seventy_billion_four_million_tokens)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace fpdt

BENCHMARK_MAIN();
