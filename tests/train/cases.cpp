// Builds the tiny models, and cases with their defaults.
#include "cases.h"

#include <cstdlib>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "fpdt/cpu/backend.h"
#include "fpdt/io/hf_weights.h"
#include "fpdt/io/problem_json.h"

#include "../spec/small_models.h"

namespace fpdt {

ModelSpec tiny_llama() { return test::small_llama("tiny-llama", 16, 4, 12, 19); }

ModelSpec tiny_gpt() {
  ModelSpec model = test::small_gpt("tiny-gpt", tiny_llama(), 40);
  model.feed_forward = 20;
  return model;
}

ModelSpec tiny_qwen3() {
  ModelSpec model = tiny_llama();
  model.name = "tiny-qwen3";
  model.head_dim = 6;
  model.qk_norm = true;
  model.tied_embeddings = true;
  model.kinds.front().rotary.factor = 4;
  model.kinds.front().rotary.scaling = RotaryScaling::yarn;
  model.kinds.front().rotary.high_frequency_factor = 32;
  model.kinds.front().rotary.original_positions = 64;
  model.kinds.front().rotary.magnitude = 1.1;
  return model;
}

ModelSpec tiny_gemma() {
  ModelSpec model = tiny_llama();
  model.name = "tiny-gemma";
  model.family = Family::gemma;
  model.activation = ActivationFamily::geglu_tanh;
  model.qk_norm = model.post_norms = model.tied_embeddings = true;
  model.attention_scale = 0.4;
  model.embedding_scale = 4;
  return model;
}

ModelSpec tiny_experts(std::int64_t experts, std::int64_t active) {
  ModelSpec model = tiny_llama();
  model.name = "tiny-experts";
  model.experts = experts;
  model.active_experts = active;
  model.balance_loss = 0.05;
  return model;
}

ModelSpec tiny_olmo() {
  ModelSpec model = tiny_llama();
  model.name = "tiny-olmo";
  model.pre_norms = false;
  model.post_norms = true;
  model.qk_norm = model.joint_qk_norm = true;
  return model;
}

ModelSpec tiny_gpt_oss(std::int64_t experts, std::int64_t active) {
  ModelSpec model = tiny_experts(experts, active);
  model.name = "tiny-gpt_oss";
  model.activation = ActivationFamily::clamped_swiglu;
  model.qkv_bias = model.bias = model.sinks = true;
  model.kinds.resize(2, model.kinds.front());
  model.kinds[0].name = "window";
  model.kinds[0].window = 7;
  model.kinds[1].name = "full";
  model.pattern = {0, 1};
  return model;
}

ModelSpec tiny_gemma2() {
  ModelSpec model = tiny_gemma();
  model.name = "tiny-gemma2";
  model.qk_norm = false;
  model.attention_cap = 0.5;
  model.logits_cap = 0.2;
  return model;
}

ModelSpec tiny_neox() {
  ModelSpec model = tiny_gpt();
  model.name = "tiny-neox";
  model.parallel_residual = true;
  model.learned_positions = 0;
  model.kinds.front().rotary.fraction = 0.5;
  model.tied_embeddings = false;
  return model;
}

Case make_case(const ModelSpec& model, std::int64_t ranks, std::int64_t seq_len,
               std::int64_t chunk_tokens) {
  Case one;
  one.name = model.name;
  one.problem.model = model;
  one.problem.cluster.name = "test";
  one.problem.cluster.devices_per_node = ranks;
  one.problem.cluster.device_memory = Bytes{1 << 30};
  one.problem.cluster.host_memory = Bytes{1 << 30};
  one.problem.cluster.source = "test";
  one.problem.device_budget = one.problem.cluster.device_memory;
  one.problem.host_budget = one.problem.cluster.host_memory;
  one.problem.seq_len = seq_len;
  one.strategy.storage = Storage::f32;
  one.strategy.tiles.chunk_tokens = chunk_tokens;
  return one;
}

std::vector<Case> drawn_cases(std::size_t count, std::uint32_t seed, Case (*draw)(std::mt19937&)) {
  if (std::getenv("FPDT_WHOLE_PRODUCT") != nullptr) count *= 40;
  std::mt19937 random(seed);
  std::vector<Case> cases;
  while (cases.size() < count) {
    Case one = draw(random);
    if (!check(one.problem, one.strategy).empty()) continue;
    one.name = fmt::format("draw{}_{}", cases.size(), one.name);
    cases.push_back(std::move(one));
  }
  return cases;
}

Rig::Rig(const Case& one, const RankOptions& options)
    : lowered(lower(one.problem, one.strategy, print_problem(one.problem, one.strategy))),
      trainer(lowered.schedule, one.problem, options) {}

RankOptions Rig::one_thread() {
  RankOptions options;
  options.threads = 1;
  return options;
}

RankOptions Rig::in_order() {
  RankOptions options = one_thread();
#if !defined(__SANITIZE_THREAD__)
  options.make_backend = [](Communicator& communicator) {
    CpuOptions cpu;
    cpu.threads = 1;
    cpu.in_order = true;
    return std::make_unique<CpuBackend>(communicator, cpu);
  };
#endif
  return options;
}

std::vector<float> all_of(const Trainer& trainer, const std::string& kind) {
  std::vector<float> all;
  for (const TensorSpec& spec : model_tensors(trainer.problem().model)) {
    const std::vector<float> values = trainer.tensor(spec.name, kind);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

}  // namespace fpdt
