// The numbers behind the small questions.
#include "problems.h"

namespace fpdt::test {

ModelSpec tiny_llama() {
  ModelSpec model;
  model.name = "tiny-llama";
  model.layers = 2;
  model.hidden = 32;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 8;
  model.feed_forward = 48;
  model.vocabulary = 64;
  model.rotary.fraction = 1;
  return model;
}

ModelSpec tiny_gpt() {
  ModelSpec model = tiny_llama();
  model.name = "tiny-gpt";
  model.family = Family::gpt;
  model.kv_heads = 4;
  model.norm = NormFamily::layer;
  model.activation = ActivationFamily::gelu_tanh;
  model.qkv_bias = model.bias = true;
  model.learned_positions = 256;
  model.rotary.fraction = 0;
  model.tied_embeddings = true;
  return model;
}

Problem tiny_problem(const ModelSpec& model, std::int64_t ranks, std::int64_t seq_len) {
  Problem problem;
  problem.model = model;
  problem.cluster.name = "test";
  problem.cluster.devices_per_node = ranks;
  problem.cluster.device_memory = problem.cluster.host_memory = Bytes{std::int64_t{1} << 40};
  problem.seq_len = seq_len;
  return problem;
}

Strategy tiny_strategy(std::int64_t chunk_tokens) {
  Strategy strategy;
  strategy.storage = Storage::f32;
  strategy.optimizer_tile = 1024;
  strategy.fpdt.chunk_tokens = chunk_tokens;
  strategy.fpdt.ffn_tile_rows = 5;
  strategy.fpdt.loss_tile_rows = 3;
  strategy.fpdt.loss_tile_vocab = 20;
  return strategy;
}

}  // namespace fpdt::test
