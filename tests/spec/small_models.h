// The two model families, at sizes for tests.
#pragma once

#include <string>
#include <utility>

#include "fpdt/spec/model.h"

namespace fpdt::test {

// Two layers, RMSNorm, swiglu, rotary, four query heads on two KV heads.
inline ModelSpec small_llama(std::string name, std::int64_t hidden, std::int64_t head_dim,
                             std::int64_t feed_forward, std::int64_t vocabulary) {
  ModelSpec model;
  model.name = std::move(name);
  model.layers = 2;
  model.hidden = hidden;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = head_dim;
  model.feed_forward = feed_forward;
  model.vocabulary = vocabulary;
  model.kinds.front().rotary.fraction = 1;
  model.source = "test";
  return model;
}

// A GPT with the sizes of a Llama: LayerNorm, gelu, biases, learned positions, tied embeddings.
inline ModelSpec small_gpt(std::string name, ModelSpec model, std::int64_t learned_positions) {
  model.name = std::move(name);
  model.family = Family::gpt;
  model.kv_heads = model.heads;
  model.norm = NormFamily::layer;
  model.activation = ActivationFamily::gelu_tanh;
  model.qkv_bias = model.bias = true;
  model.learned_positions = learned_positions;
  model.kinds.front().rotary.fraction = 0;
  model.tied_embeddings = true;
  return model;
}

}  // namespace fpdt::test
