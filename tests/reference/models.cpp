// The models for the reference's tests.
#include "models.h"

#include <array>
#include <string>

#include "fpdt/base/hash.h"
#include "fpdt/spec/initial.h"

#include "../spec/small_models.h"

namespace fpdt::reference {
namespace {

double normal(std::uint64_t seed, const std::string& name, std::int64_t element) {
  std::array<float, 1> value{};
  initial_values(seed, fnv1a(name), element, {name, {}, false, 1.0, 0}, value);
  return static_cast<double>(value[0]);
}

}  // namespace

ModelSpec llama_model() { return test::small_llama("llama", 12, 4, 10, 17); }

ModelSpec llama3_model() {
  ModelSpec model = llama_model();
  model.head_dim = 12;  // 3 pairs rotate: one in each frequency range of the scaling
  model.kinds.front().rotary.fraction = 0.5;
  model.kinds.front().rotary.theta = 30;
  model.kinds.front().rotary.factor = 8;
  model.kinds.front().rotary.original_positions = 32;
  model.qkv_bias = true;
  model.tied_embeddings = true;
  return model;
}

ModelSpec qwen3_model() {
  ModelSpec model = llama_model();
  model.name = "qwen3";
  model.head_dim = 6;
  model.qk_norm = true;
  model.norm_epsilon = 1e-2;  // large enough to matter
  model.kinds.front().rotary.factor = 4;
  model.kinds.front().rotary.scaling = RotaryScaling::yarn;
  model.kinds.front().rotary.original_positions = 64;
  model.kinds.front().rotary.high_frequency_factor = 8;
  model.kinds.front().rotary.magnitude = 1.2;
  return model;
}

ModelSpec windowed_model() {
  ModelSpec model = llama_model();
  model.name = "windowed";
  model.layers = 3;
  model.kinds.resize(2, model.kinds.front());
  model.kinds[0].name = "window";
  model.kinds[0].window = 3;
  model.kinds[1].name = "full";
  model.kinds[1].rotary.theta = 40;
  model.pattern = {0, 1};
  return model;
}

ModelSpec gemma_model() {
  ModelSpec model = windowed_model();
  model.name = "gemma";
  model.family = Family::gemma;
  model.activation = ActivationFamily::geglu_tanh;
  model.qk_norm = model.post_norms = model.tied_embeddings = true;
  model.attention_scale = 0.7;
  model.embedding_scale = 3.5;
  return model;
}

ModelSpec gemma2_model() {
  ModelSpec model = gemma_model();
  model.name = "gemma2";
  model.qk_norm = false;
  model.attention_cap = 1.5;
  model.logits_cap = 0.8;
  return model;
}

ModelSpec sinks_model() {
  ModelSpec model = windowed_model();
  model.name = "sinks";
  model.sinks = true;
  return model;
}

ModelSpec experts_model() {
  ModelSpec model = qwen3_model();
  model.name = "experts";
  model.experts = 4;
  model.active_experts = 2;
  return model;
}

ModelSpec gpt_model(ActivationFamily activation) {
  ModelSpec model = test::small_gpt("gpt", llama_model(), 9);
  model.activation = activation;
  return model;
}

Parameters random_parameters(const ModelSpec& model, std::uint64_t seed) {
  Parameters parameters;
  for (const TensorSpec& tensor : model_tensors(model)) {
    Matrix& values = parameters.tensors[tensor.name];
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      values.push_back(tensor.fill + 0.3 * normal(seed, tensor.name, i));
    }
  }
  return parameters;
}

Sample random_sample(const ModelSpec& model, const std::vector<std::int32_t>& lengths,
                     std::uint64_t seed) {
  Sample sample;
  const auto word = [&](const char* row) {
    const double x = normal(seed, row, static_cast<std::int64_t>(sample.documents.size()));
    const double positive = x < 0 ? -x : x;
    return static_cast<std::int32_t>(static_cast<std::int64_t>(1000 * positive) % model.vocabulary);
  };
  for (const std::int32_t length : lengths) {
    const auto first = static_cast<std::int32_t>(sample.documents.size());
    for (std::int32_t i = 0; i < length; ++i) {
      sample.tokens.push_back(word("tokens"));
      sample.labels.push_back((first + i) % 4 == 3 ? -1 : word("labels"));
      sample.documents.push_back(first);
    }
  }
  return sample;
}

}  // namespace fpdt::reference
