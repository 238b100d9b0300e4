// Prints the config.json of a model.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/io/hf_config.h"
#include "fpdt/io/hf_family.h"
#include "fpdt/io/hf_reader.h"

namespace fpdt {
namespace {

// Its keys keep the order in which they are added.
using Config = nlohmann::ordered_json;

// transformers does not enforce this key; the schedule sets the length of sequences.
constexpr std::int64_t kPositions = 1 << 20;

// The positions from which transformers takes longrope's magnitude, if there are any.
std::optional<std::int64_t> longrope_positions(const RotarySpec& rotary) {
  const auto original = static_cast<double>(rotary.original_positions);
  const double positions = std::round(std::pow(original, rotary.magnitude * rotary.magnitude));
  const double found = longrope_magnitude(positions / original, rotary.original_positions);
  if (!(positions < 0x1p53) || std::abs(found - rotary.magnitude) > 1e-12) return std::nullopt;
  return static_cast<std::int64_t>(positions);
}

// As few keys as transformers took from Phi 3 at first: others stand beside them.
void add_longrope(Config& config, const RotarySpec& rotary) {
  Config& scaling = config["rope_scaling"];
  scaling["type"] = word(rotary.scaling);
  scaling["short_factor"] = rotary.short_factors;
  scaling["long_factor"] = rotary.long_factors;
  config["original_max_position_embeddings"] = rotary.original_positions;
  if (const auto positions = longrope_positions(rotary)) {
    config["max_position_embeddings"] = *positions;
  } else {
    scaling["attention_factor"] = rotary.magnitude;
  }
}

void add_scaling(Config& config, const RotarySpec& rotary) {
  if (is_longrope(rotary)) return add_longrope(config, rotary);
  if (rotary.factor == 1 && rotary.magnitude == 1) return;
  const bool yarn = is_yarn(rotary) || rotary.magnitude != 1;
  Config& scaling = config["rope_scaling"];
  scaling["rope_type"] = word(yarn ? RotaryScaling::yarn : rotary.scaling);
  scaling["factor"] = rotary.factor;
  if (yarn) {
    scaling["beta_slow"] = rotary.low_frequency_factor;
    scaling["beta_fast"] = rotary.high_frequency_factor;
    scaling["attention_factor"] = rotary.magnitude;
    if (rotary.scaling == RotaryScaling::yarn_exact) scaling["truncate"] = false;
  } else if (rotary.scaling == RotaryScaling::llama3) {
    scaling["low_freq_factor"] = rotary.low_frequency_factor;
    scaling["high_freq_factor"] = rotary.high_frequency_factor;
  }
  if (yarn || rotary.scaling != RotaryScaling::linear) {
    scaling["original_max_position_embeddings"] = rotary.original_positions;
  }
}

void add_layer_types(Config& config, const ModelSpec& model) {
  Config& types = config["layer_types"] = Config::array();
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    types.push_back(model.kind_of(layer).window > 0 ? "sliding_attention" : "full_attention");
  }
}

void add_windows(Config& config, const ModelSpec& model, std::string_view type) {
  const std::int64_t window = window_of(model);
  if (type == "mistral") config["sliding_window"] = window;
  if (!type.starts_with("qwen")) return;
  config["use_sliding_window"] = window > 0;
  if (window == 0) return;
  config["sliding_window"] = window;
  // transformers takes the list where there is one.
  config["max_window_layers"] = 0;
  add_layer_types(config, model);
}

// The keys that Llama and its like share. `type` is the model type, `name` that of the class.
Config common_config(const ModelSpec& model, std::string_view type, std::string_view name) {
  const bool gemma = model.family == Family::gemma;
  return {{"architectures", Config::array({fmt::format("{}ForCausalLM", name)})},
          {"model_type", type},
          {"hidden_size", model.hidden},
          {"num_hidden_layers", model.layers},
          {"num_attention_heads", model.heads},
          {"num_key_value_heads", model.kv_heads},
          {"head_dim", model.head_dim},
          {"intermediate_size", model.feed_forward},
          {gemma ? "hidden_activation" : "hidden_act", gemma ? "gelu_pytorch_tanh" : "silu"},
          {"rms_norm_eps", model.norm_epsilon},
          {"max_position_embeddings", kPositions}};
}

void add_balance(Config& config, const ModelSpec& model) {
  config["num_experts_per_tok"] = model.active_experts;
  if (!(model.balance_loss > 0)) return;
  config["router_aux_loss_coef"] = model.balance_loss;
  config["output_router_logits"] = true;
}

void add_experts(Config& config, const ModelSpec& model, HfFamily family) {
  add_balance(config, model);
  if (family == HfFamily::minimax_m2) {
    config["num_local_experts"] = model.experts;
    config["rotary_dim"] = model.rotary_dim(model.kinds.front());
    config["scoring_func"] = "sigmoid";
    config["use_routing_bias"] = config["use_qk_norm"] = true;
    config["qk_norm_type"] = "per_layer";
    return;
  }
  if (family == HfFamily::mixtral) {
    config["num_local_experts"] = model.experts;
    const std::int64_t window = model.kinds.front().window;
    config["sliding_window"] = window > 0 ? Config(window) : Config(nullptr);
    return;
  }
  config["num_experts"] = model.experts;
  const bool qwen = family == HfFamily::qwen3_moe;
  if (qwen) config["moe_intermediate_size"] = model.feed_forward;
  config["norm_topk_prob"] = model.normalised_experts;
  if (!qwen) return;
  config["decoder_sparse_step"] = 1;
  config["mlp_only_layers"] = Config::array();
  config["use_sliding_window"] = false;
}

Config glm_config(const ModelSpec& model) {
  const LayerKind& first = model.kinds.front();
  Config config = common_config(model, "glm4_moe", "Glm4Moe");
  const bool leads = first.dense_feed_forward > 0;
  config["intermediate_size"] = leads ? first.dense_feed_forward : model.feed_forward;
  config["moe_intermediate_size"] = model.feed_forward;
  config["n_routed_experts"] = model.experts;
  config["num_experts_per_tok"] = model.active_experts;
  config["n_shared_experts"] = model.shared_feed_forward / model.feed_forward;
  config["first_k_dense_replace"] = std::count(model.leading.begin(), model.leading.end(), 0);
  config["norm_topk_prob"] = model.normalised_experts;
  config["routed_scaling_factor"] = model.expert_scale;
  config["n_group"] = config["topk_group"] = 1;
  config["attention_bias"] = model.qkv_bias;
  config["use_qk_norm"] = model.qk_norm;
  config["num_nextn_predict_layers"] = 0;
  config["partial_rotary_factor"] = first.rotary.fraction;
  config["rope_theta"] = first.rotary.theta;
  add_scaling(config, first.rotary);
  return config;
}

// The model type and the name of the class.
std::pair<const char*, const char*> llama_names(const ModelSpec& model, HfFamily family) {
  if (family == HfFamily::minimax_m2) return {"minimax_m2", "MiniMaxM2"};
  if (family == HfFamily::mixtral) return {"mixtral", "Mixtral"};
  if (family == HfFamily::qwen3_moe) return {"qwen3_moe", "Qwen3Moe"};
  if (family == HfFamily::olmoe) return {"olmoe", "Olmoe"};
  if (model.qk_norm) return {"qwen3", "Qwen3"};
  if (model.qkv_bias) return {"qwen2", "Qwen2"};
  return window_of(model) > 0 ? std::pair("mistral", "Mistral") : std::pair("llama", "Llama");
}

Config llama_config(const ModelSpec& model, HfFamily family) {
  const auto [type, name] = llama_names(model, family);
  Config config = common_config(model, type, name);
  config["rope_theta"] = model.kinds.front().rotary.theta;
  add_scaling(config, model.kinds.front().rotary);
  const bool llama = std::string_view(type) == "llama";
  if (llama || model.qk_norm) config["attention_bias"] = false;
  if (llama) config["mlp_bias"] = false;
  if (model.has_experts()) {
    add_experts(config, model, family);
  } else {
    add_windows(config, model, type);
  }
  return config;
}

Config gpt_oss_config(const ModelSpec& model) {
  Config config = common_config(model, "gpt_oss", "GptOss");
  config["num_local_experts"] = model.experts;
  add_balance(config, model);
  config["rope_theta"] = model.kinds.front().rotary.theta;
  add_scaling(config, model.kinds.front().rotary);
  // Without a scaling transformers takes its own.
  if (!config.contains("rope_scaling")) config["rope_scaling"] = {{"rope_type", "default"}};
  config["attention_bias"] = true;
  config["sliding_window"] = window_of(model);
  add_layer_types(config, model);
  return config;
}

Config phi_config(const ModelSpec& model) {
  const LayerKind& kind = model.kinds.front();
  Config config = common_config(model, "phi3", "Phi3");
  config["original_max_position_embeddings"] = kPositions;
  config["pad_token_id"] = nullptr;
  config["rope_theta"] = kind.rotary.theta;
  config["partial_rotary_factor"] = kind.rotary.fraction;
  add_scaling(config, kind.rotary);
  config["sliding_window"] = kind.window > 0 ? Config(kind.window) : Config(nullptr);
  return config;
}

Config gemma_config(const ModelSpec& model) {
  const double scale = model.score_scale();
  RotarySpec full = model.kinds.front().rotary, local = full;
  for (const LayerKind& kind : model.kinds) (kind.window > 0 ? local : full) = kind.rotary;
  const bool second = hf_family(model) == HfFamily::gemma2;
  Config config = second ? common_config(model, "gemma2", "Gemma2")
                         : common_config(model, "gemma3_text", "Gemma3");
  config["query_pre_attn_scalar"] = std::llround(1 / (scale * scale));
  config["rope_theta"] = full.theta;
  if (!second) config["rope_local_base_freq"] = local.theta;
  add_scaling(config, full);
  config["attention_bias"] = false;
  config["sliding_window"] = window_of(model);
  add_layer_types(config, model);
  if (!second) return config;
  const auto cap = [](double value) { return value > 0 ? Config(value) : Config(nullptr); };
  config["attn_logit_softcapping"] = cap(model.attention_cap);
  config["final_logit_softcapping"] = cap(model.logits_cap);
  return config;
}

Config olmo_config(const ModelSpec& model) {
  const bool second = hf_family(model) == HfFamily::olmo2;
  Config config = common_config(model, second ? "olmo2" : "olmo3", second ? "Olmo2" : "Olmo3");
  RotarySpec full = model.kinds.front().rotary;
  for (const LayerKind& kind : model.kinds) {
    if (kind.window == 0) full = kind.rotary;
  }
  config["rope_theta"] = full.theta;
  add_scaling(config, full);
  config["attention_bias"] = false;
  if (second) return config;
  config["sliding_window"] = window_of(model);
  add_layer_types(config, model);
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
      {"rotary_pct", model.kinds.front().rotary.fraction},
      {"rotary_emb_base", model.kinds.front().rotary.theta}};
  add_scaling(config, model.kinds.front().rotary);
  config["use_parallel_residual"] = model.parallel_residual;
  config["attention_bias"] = true;
  return config;
}

Config family_config(const ModelSpec& model) {
  const HfFamily family = hf_family(model);
  switch (family) {
    case HfFamily::llama:
    case HfFamily::mixtral:
    case HfFamily::qwen3_moe:
    case HfFamily::olmoe:
    case HfFamily::minimax_m2:
      return llama_config(model, family);
    case HfFamily::glm4_moe:
      return glm_config(model);
    case HfFamily::gpt_oss:
      return gpt_oss_config(model);
    case HfFamily::phi3:
      return phi_config(model);
    case HfFamily::gemma2:
    case HfFamily::gemma3:
      return gemma_config(model);
    case HfFamily::olmo2:
    case HfFamily::olmo3:
      return olmo_config(model);
    case HfFamily::gpt2:
      return gpt2_config(model);
    case HfFamily::gpt_neox:
      return gpt_neox_config(model);
  }
  return {};
}

}  // namespace

std::string hf_config_json(const ModelSpec& model) {
  Config config = family_config(model);
  config["vocab_size"] = model.vocabulary;
  config["tie_word_embeddings"] = model.tied_embeddings;
  return config.dump(2) + "\n";
}

}  // namespace fpdt
