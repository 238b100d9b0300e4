// How long the search takes: the whole of it, on one core.
#include <benchmark/benchmark.h>

#include "fpdt/plan/plan.h"

namespace fpdt {
namespace {

// The shape of Llama 3 on nodes of four A100 80 GB with 1 TiB of host memory each.
Problem question(std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                 std::int64_t feed_forward, std::int64_t nodes, std::int64_t seq_len) {
  Problem problem;
  ModelSpec& model = problem.model;
  model.name = "llama3";
  model.layers = layers;
  model.hidden = hidden;
  model.heads = heads;
  model.kv_heads = 8;
  model.head_dim = 128;
  model.feed_forward = feed_forward;
  model.vocabulary = 128256;
  model.rotary.fraction = 1;
  ClusterSpec& cluster = problem.cluster;
  cluster.name = "a100";
  cluster.nodes = nodes;
  cluster.devices_per_node = 4;
  cluster.row_multiple = 128;
  cluster.device_memory = problem.device_budget = Bytes{std::int64_t{80} << 30};
  cluster.host_memory = problem.host_budget = Bytes{std::int64_t{1} << 40};
  Rates& rates = cluster.rates;
  rates.peak_flops = 312e12;
  rates.matmul = {250e12, 230e12, 270e12};
  rates.attention_forward = {190e12, 170e12, 200e12};
  rates.attention_backward = {175e12, 160e12, 185e12};
  rates.device_bandwidth = {1.6e12, 1.4e12, 1.8e12};
  rates.h2d = rates.d2h = {24e9, 20e9, 25e9};
  rates.link = {240e9, 200e9, 270e9};
  rates.network = {40e9, 30e9, 48e9};
  rates.op_seconds = rates.collective_seconds = {8e-6, 5e-6, 1e-5};
  rates.interference.h2d_beside_d2h = {0.5, 0.4, 0.6};
  problem.seq_len = seq_len;
  return problem;
}

void search_and_plan(benchmark::State& state, const Problem& problem) {
  for (auto _ : state) {
    const SearchResult found = search(problem);
    benchmark::DoNotOptimize(make_plan(problem, found.best->strategy));
  }
}

void eight_billion_two_million_tokens(benchmark::State& state) {
  search_and_plan(state, question(32, 4096, 32, 14336, 1, std::int64_t{1} << 21));
}
BENCHMARK(eight_billion_two_million_tokens)->Unit(benchmark::kMillisecond);

void seventy_billion_four_million_tokens(benchmark::State& state) {
  search_and_plan(state, question(80, 8192, 64, 28672, 8, std::int64_t{1} << 22));
}
BENCHMARK(seventy_billion_four_million_tokens)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace fpdt

BENCHMARK_MAIN();
