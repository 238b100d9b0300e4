// Finds the Hugging Face family of a model, and prints its config.json.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/io/hf_config.h"

namespace fpdt {
namespace {

bool is_llama(const ModelSpec& model) {
  return model.norm == NormFamily::rms && model.activation == ActivationFamily::swiglu &&
         !model.bias && !model.parallel_residual && !(model.qk_norm && model.qkv_bias) &&
         model.learned_positions == 0 && model.rotary.fraction == 1;
}

// The properties that gpt2 and gpt_neox share.
bool is_gpt(const ModelSpec& model) {
  return model.norm == NormFamily::layer && model.activation != ActivationFamily::swiglu &&
         model.bias && model.qkv_bias && !model.qk_norm && model.kv_heads == model.heads &&
         model.q_width() == model.hidden;
}

// Its keys keep the order in which they are added.
using Config = nlohmann::ordered_json;

// transformers does not enforce this key; the schedule sets the length of sequences.
constexpr std::int64_t kPositions = 1 << 20;

// Among the scalings that transformers knows, only yarn has a magnitude. With a factor of 1 the
// scalings differ in nothing else.
void require_magnitude(const ModelSpec& model) {
  const RotarySpec& rotary = model.rotary;
  if (rotary.fraction == 0 || rotary.magnitude == 1 || rotary.factor == 1 ||
      rotary.scaling == RotaryScaling::yarn) {
    return;
  }
  throw InputError(
      fmt::format("model {}: rotary.magnitude {} beside scaling {} with factor {}: no Hugging Face "
                  "family computes that; expected magnitude 1, factor 1 or scaling yarn",
                  model.name, rotary.magnitude, word(rotary.scaling), rotary.factor));
}

void add_scaling(Config& config, const RotarySpec& rotary) {
  if (rotary.factor == 1 && rotary.magnitude == 1) return;
  const bool yarn = rotary.scaling == RotaryScaling::yarn || rotary.magnitude != 1;
  Config& scaling = config["rope_scaling"];
  scaling["rope_type"] = word(yarn ? RotaryScaling::yarn : rotary.scaling);
  scaling["factor"] = rotary.factor;
  if (yarn) {
    scaling["beta_slow"] = rotary.low_frequency_factor;
    scaling["beta_fast"] = rotary.high_frequency_factor;
    scaling["attention_factor"] = rotary.magnitude;
  } else if (rotary.scaling == RotaryScaling::llama3) {
    scaling["low_freq_factor"] = rotary.low_frequency_factor;
    scaling["high_freq_factor"] = rotary.high_frequency_factor;
  }
  if (yarn || rotary.scaling != RotaryScaling::linear) {
    scaling["original_max_position_embeddings"] = rotary.original_positions;
  }
}

Config llama_config(const ModelSpec& model) {
  const std::string_view type = model.qk_norm ? "qwen3" : model.qkv_bias ? "qwen2" : "llama";
  const std::string_view name = model.qk_norm ? "Qwen3" : model.qkv_bias ? "Qwen2" : "Llama";
  Config config{{"architectures", Config::array({fmt::format("{}ForCausalLM", name)})},
                {"model_type", type},
                {"hidden_size", model.hidden},
                {"num_hidden_layers", model.layers},
                {"num_attention_heads", model.heads},
                {"num_key_value_heads", model.kv_heads},
                {"head_dim", model.head_dim},
                {"intermediate_size", model.feed_forward},
                {"hidden_act", "silu"},
                {"rms_norm_eps", model.norm_epsilon},
                {"max_position_embeddings", kPositions},
                {"rope_theta", model.rotary.theta}};
  add_scaling(config, model.rotary);
  if (type != "qwen2") config["attention_bias"] = false;
  config[type == "llama" ? "mlp_bias" : "use_sliding_window"] = false;
  return config;
}

Config gpt2_config(const ModelSpec& model) {
  return {{"architectures", Config::array({"GPT2LMHeadModel"})},
          {"model_type", "gpt2"},
          {"n_embd", model.hidden},
          {"n_layer", model.layers},
          {"n_head", model.heads},
          {"n_inner", model.feed_forward},
          {"n_positions", model.learned_positions},
          {"activation_function",
           model.activation == ActivationFamily::gelu_tanh ? "gelu_new" : "gelu"},
          {"layer_norm_epsilon", model.norm_epsilon},
          {"attn_pdrop", 0.0},
          {"embd_pdrop", 0.0},
          {"resid_pdrop", 0.0}};
}

Config gpt_neox_config(const ModelSpec& model) {
  Config config{
      {"architectures", Config::array({"GPTNeoXForCausalLM"})},
      {"model_type", "gpt_neox"},
      {"hidden_size", model.hidden},
      {"num_hidden_layers", model.layers},
      {"num_attention_heads", model.heads},
      {"intermediate_size", model.feed_forward},
      {"hidden_act", model.activation == ActivationFamily::gelu_tanh ? "gelu_new" : "gelu"},
      {"layer_norm_eps", model.norm_epsilon},
      {"max_position_embeddings", kPositions},
      {"rotary_pct", model.rotary.fraction},
      {"rotary_emb_base", model.rotary.theta}};
  add_scaling(config, model.rotary);
  config["use_parallel_residual"] = model.parallel_residual;
  config["attention_bias"] = true;
  return config;
}

Config family_config(const ModelSpec& model) {
  switch (hf_family(model)) {
    case HfFamily::llama:
      return llama_config(model);
    case HfFamily::gpt2:
      return gpt2_config(model);
    case HfFamily::gpt_neox:
      return gpt_neox_config(model);
  }
  return {};
}

}  // namespace

HfFamily hf_family(const ModelSpec& model) {
  require_magnitude(model);
  if (is_llama(model)) return HfFamily::llama;
  if (is_gpt(model) && model.learned_positions > 0 && model.rotary.fraction == 0 &&
      !model.parallel_residual) {
    return HfFamily::gpt2;
  }
  if (is_gpt(model) && model.learned_positions == 0 && model.rotary.fraction > 0) {
    return HfFamily::gpt_neox;
  }
  throw InputError(fmt::format(
      "model {}: no Hugging Face family computes the same; known are llama, qwen2 and qwen3 "
      "(rms norm, swiglu, whole rotary, no biases but of qkv or norms of heads), gpt2 "
      "(layer norm, gelu, biases, learned positions), gpt_neox (layer norm, gelu, "
      "biases, rotary)",
      model.name));
}

std::string hf_config_json(const ModelSpec& model) {
  Config config = family_config(model);
  config["vocab_size"] = model.vocabulary;
  config["tie_word_embeddings"] = model.tied_embeddings;
  return config.dump(2) + "\n";
}

}  // namespace fpdt
