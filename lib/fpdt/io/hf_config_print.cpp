// Finds the Hugging Face family of a model, and prints its config.json.
#include <fmt/format.h>

#include "fpdt/io/hf_config.h"
#include "fpdt/io/json.h"

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

// Prints keys as transformers does: one a line, or all on one line for a nested map.
class ConfigPrinter {
 public:
  enum class Form { lines, line };
  explicit ConfigPrinter(Form form = Form::lines) : form_(form) {}

  void raw(std::string_view key, std::string_view value) {
    const std::string_view between = form_ == Form::lines ? "\n  " : text_.empty() ? "" : " ";
    text_ += fmt::format("{}{}\"{}\": {}", text_.empty() ? "" : ",", between, key, value);
  }
  void text(std::string_view key, std::string_view value) { raw(key, json_string(value)); }
  void number(std::string_view key, std::int64_t value) { raw(key, fmt::format("{}", value)); }
  void number(std::string_view key, double value) { raw(key, fmt::format("{}", value)); }
  // Prints a decimal point, which transformers requires.
  void real(std::string_view key, double value) { raw(key, fmt::format("{:#}", value)); }
  void flag(std::string_view key, bool value) { raw(key, value ? "true" : "false"); }
  [[nodiscard]] std::string object() const {
    return "{" + text_ + (form_ == Form::lines ? "\n}\n" : "}");
  }

 private:
  Form form_;
  std::string text_;
};

// transformers does not enforce this key; the schedule sets the length of sequences.
constexpr std::int64_t kPositions = 1 << 20;

void print_scaling(ConfigPrinter& config, const RotarySpec& rotary) {
  if (rotary.factor == 1 && rotary.magnitude == 1) return;
  ConfigPrinter scaling(ConfigPrinter::Form::line);
  scaling.text("rope_type", word(rotary.scaling));
  scaling.real("factor", rotary.factor);
  if (rotary.scaling == RotaryScaling::yarn) {
    scaling.real("beta_slow", rotary.low_frequency_factor);
    scaling.real("beta_fast", rotary.high_frequency_factor);
    scaling.real("attention_factor", rotary.magnitude);
  } else if (rotary.scaling == RotaryScaling::llama3) {
    scaling.real("low_freq_factor", rotary.low_frequency_factor);
    scaling.real("high_freq_factor", rotary.high_frequency_factor);
  }
  if (rotary.scaling != RotaryScaling::linear) {
    scaling.number("original_max_position_embeddings", rotary.original_positions);
  }
  config.raw("rope_scaling", scaling.object());
}

void print_llama(ConfigPrinter& config, const ModelSpec& model) {
  const std::string_view type = model.qk_norm ? "qwen3" : model.qkv_bias ? "qwen2" : "llama";
  const std::string_view name = model.qk_norm ? "Qwen3" : model.qkv_bias ? "Qwen2" : "Llama";
  config.raw("architectures", fmt::format("[\"{}ForCausalLM\"]", name));
  config.text("model_type", type);
  config.number("hidden_size", model.hidden);
  config.number("num_hidden_layers", model.layers);
  config.number("num_attention_heads", model.heads);
  config.number("num_key_value_heads", model.kv_heads);
  config.number("head_dim", model.head_dim);
  config.number("intermediate_size", model.feed_forward);
  config.text("hidden_act", "silu");
  config.number("rms_norm_eps", model.norm_epsilon);
  config.number("max_position_embeddings", kPositions);
  config.number("rope_theta", model.rotary.theta);
  print_scaling(config, model.rotary);
  if (type != "qwen2") config.flag("attention_bias", false);
  if (type == "llama") {
    config.flag("mlp_bias", false);
  } else {
    config.flag("use_sliding_window", false);
  }
}

void print_gpt2(ConfigPrinter& config, const ModelSpec& model) {
  config.raw("architectures", "[\"GPT2LMHeadModel\"]");
  config.text("model_type", "gpt2");
  config.number("n_embd", model.hidden);
  config.number("n_layer", model.layers);
  config.number("n_head", model.heads);
  config.number("n_inner", model.feed_forward);
  config.number("n_positions", model.learned_positions);
  config.text("activation_function",
              model.activation == ActivationFamily::gelu_tanh ? "gelu_new" : "gelu");
  config.number("layer_norm_epsilon", model.norm_epsilon);
  for (const std::string_view key : {"attn_pdrop", "embd_pdrop", "resid_pdrop"})
    config.number(key, 0.0);
}

void print_gpt_neox(ConfigPrinter& config, const ModelSpec& model) {
  config.raw("architectures", "[\"GPTNeoXForCausalLM\"]");
  config.text("model_type", "gpt_neox");
  config.number("hidden_size", model.hidden);
  config.number("num_hidden_layers", model.layers);
  config.number("num_attention_heads", model.heads);
  config.number("intermediate_size", model.feed_forward);
  config.text("hidden_act", model.activation == ActivationFamily::gelu_tanh ? "gelu_new" : "gelu");
  config.number("layer_norm_eps", model.norm_epsilon);
  config.number("max_position_embeddings", kPositions);
  config.number("rotary_pct", model.rotary.fraction);
  config.number("rotary_emb_base", model.rotary.theta);
  print_scaling(config, model.rotary);
  config.flag("use_parallel_residual", model.parallel_residual);
  config.flag("attention_bias", true);
}

}  // namespace

HfFamily hf_family(const ModelSpec& model) {
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
  ConfigPrinter config;
  switch (hf_family(model)) {
    case HfFamily::llama:
      print_llama(config, model);
      break;
    case HfFamily::gpt2:
      print_gpt2(config, model);
      break;
    case HfFamily::gpt_neox:
      print_gpt_neox(config, model);
      break;
  }
  config.number("vocab_size", model.vocabulary);
  config.flag("tie_word_embeddings", model.tied_embeddings);
  return config.object();
}

}  // namespace fpdt
