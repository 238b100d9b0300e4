// Builds the small questions.
#include "problems.h"

#include "small_models.h"

namespace fpdt::test {
namespace {

Problem on_a100(const ModelSpec& model, std::int64_t nodes, std::int64_t seq_len) {
  Problem problem;
  problem.model = model;
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

}  // namespace

ModelSpec tiny_llama() { return small_llama("tiny-llama", 32, 8, 48, 64); }

ModelSpec tiny_gpt() { return small_gpt("tiny-gpt", tiny_llama(), 256); }

Problem tiny_problem(const ModelSpec& model, std::int64_t ranks, std::int64_t seq_len) {
  Problem problem;
  problem.model = model;
  problem.cluster.name = "test";
  problem.cluster.devices_per_node = ranks;
  problem.cluster.device_memory = problem.cluster.host_memory = Bytes{std::int64_t{1} << 40};
  problem.seq_len = seq_len;
  return problem;
}

ModelSpec llama3(std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                 std::int64_t feed_forward) {
  ModelSpec model;
  model.name = "llama3";
  model.layers = layers;
  model.hidden = hidden;
  model.heads = heads;
  model.kv_heads = 8;
  model.head_dim = 128;
  model.feed_forward = feed_forward;
  model.vocabulary = 128256;
  model.kinds.front().rotary.fraction = 1;
  return model;
}

Problem llama3_8b(std::int64_t seq_len) { return on_a100(llama3(32, 4096, 32, 14336), 1, seq_len); }

Problem llama3_70b(std::int64_t seq_len) {
  return on_a100(llama3(80, 8192, 64, 28672), 8, seq_len);
}

Problem timed_problem(const ModelSpec& model, std::int64_t ranks, std::int64_t seq_len) {
  Problem problem = tiny_problem(model, ranks, seq_len);
  problem.device_budget = problem.host_budget = problem.cluster.device_memory;
  problem.cluster.row_multiple = seq_len / 8 / ranks;  // at most eight chunks
  Rates& rates = problem.cluster.rates;
  rates.peak_flops = 1e10;
  rates.matmul = {5e9, 5e9, 5e9};
  rates.attention_forward = rates.attention_backward = {4e9, 4e9, 4e9};
  rates.device_bandwidth = {1e10, 1e10, 1e10};
  rates.h2d = rates.d2h = {2e8, 2e8, 2e8};
  rates.link = {5e8, 5e8, 5e8};
  rates.op_seconds = {2e-7, 2e-7, 2e-7};
  rates.interference.h2d_beside_d2h = {0.5, 0.5, 0.5};
  return problem;
}

Strategy tiny_strategy(std::int64_t chunk_tokens) {
  Strategy strategy;
  strategy.storage = Storage::f32;
  strategy.copies.optimizer_tile = 1024;
  strategy.tiles.chunk_tokens = chunk_tokens;
  strategy.tiles.ffn_rows = 5;
  strategy.tiles.loss_rows = 3;
  strategy.tiles.loss_vocabulary = 20;
  return strategy;
}

}  // namespace fpdt::test
