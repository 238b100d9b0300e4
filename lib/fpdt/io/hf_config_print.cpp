// Finds the Hugging Face family of a model, and prints its config.json.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/io/hf_config.h"
#include "fpdt/io/hf_reader.h"

namespace fpdt {
namespace {

// Whether layers differ in nothing but whether they see all tokens or one window.
bool has_one_window(const ModelSpec& model) {
  const LayerKind& first = model.kinds.front();
  if (model.kinds.size() == 1) return true;
  return model.kinds.size() == 2 && model.kinds.back().rotary == first.rotary &&
         (first.window == 0 || model.kinds.back().window == 0);
}

// Of layers that see one, or 0.
std::int64_t window_of(const ModelSpec& model) {
  return std::max(model.kinds.front().window, model.kinds.back().window);
}

// Without what only Gemma has, and without sinks.
bool is_plain(const ModelSpec& model) {
  return model.family != Family::gemma && !model.post_norms && !model.sinks &&
         model.attention_scale == 0 && model.attention_cap == 0 && model.logits_cap == 0 &&
         model.embedding_scale == 1;
}

// Norms all heads of queries together, as many columns as the stream has.
bool is_olmoe(const ModelSpec& model) {
  return model.has_experts() && model.joint_qk_norm && model.q_width() == model.hidden &&
         model.kinds.size() == 1 && model.kinds.front().window == 0;
}

// Routes by sigmoids, and norms all heads of queries together.
bool is_minimax(const ModelSpec& model) {
  return model.family == Family::llama && is_plain(model) && model.pre_norms &&
         model.norm == NormFamily::rms && model.activation == ActivationFamily::swiglu &&
         model.has_experts() && model.sigmoid_router && model.normalised_experts &&
         model.joint_qk_norm && !model.bias && !model.qkv_bias && model.learned_positions == 0 &&
         model.kinds.size() == 1 && model.kinds.front().window == 0;
}

bool is_longrope(const RotarySpec& rotary) { return rotary.scaling == RotaryScaling::longrope; }

// Norms outputs alone, and all heads together. Layers with a window have plain frequencies, whose
// base a config cannot say for all versions of transformers.
bool is_olmo(const ModelSpec& model) {
  const LayerKind &first = model.kinds.front(), &last = model.kinds.back();
  const bool one_kind = model.kinds.size() == 1;
  const bool window_beside_full =
      model.kinds.size() == 2 && (first.window == 0) != (last.window == 0);
  for (const LayerKind& kind : model.kinds) {
    const RotarySpec& rotary = kind.rotary;
    if (rotary.fraction != 1 || is_longrope(rotary)) return false;
    if (kind.window > 0 && (rotary.factor != 1 || rotary.magnitude != 1)) return false;
    if (window_of(model) > 0 && rotary.theta != kOlmo3Theta) return false;
  }
  return model.family == Family::llama && !model.pre_norms && model.post_norms &&
         model.joint_qk_norm && !model.has_experts() && (one_kind || window_beside_full) &&
         model.norm == NormFamily::rms && model.activation == ActivationFamily::swiglu &&
         !model.qkv_bias && !model.sinks && model.attention_scale == 0 &&
         model.attention_cap == 0 && model.logits_cap == 0 && model.embedding_scale == 1 &&
         model.learned_positions == 0;
}

// Mistral has windows in all layers, Qwen in some as well.
bool is_llama(const ModelSpec& model) {
  const bool mixes = model.qk_norm || model.qkv_bias;
  return is_plain(model) && has_one_window(model) && (model.kinds.size() == 1 || mixes) &&
         model.norm == NormFamily::rms && model.activation == ActivationFamily::swiglu &&
         !model.bias && !model.sigmoid_router && !model.parallel_residual &&
         !(model.qk_norm && model.qkv_bias) && model.joint_qk_norm == is_olmoe(model) &&
         model.learned_positions == 0 &&
         (model.family == Family::phi || model.kinds.front().rotary.fraction == 1);
}

// All layers have experts. Mixtral divides their weights by the sum of those taken.
bool is_mixtral(const ModelSpec& model) {
  return model.has_experts() && !model.qk_norm && !model.qkv_bias && model.normalised_experts &&
         model.kinds.size() == 1;
}
bool is_qwen_moe(const ModelSpec& model) {
  return model.has_experts() && model.qk_norm && !model.joint_qk_norm && model.kinds.size() == 1 &&
         model.kinds.front().window == 0;
}

// Experts with biases, of a clamped activation, in layers whose attention has sinks.
bool is_gpt_oss(const ModelSpec& model) {
  return model.family == Family::llama && has_one_window(model) && window_of(model) > 0 &&
         model.norm == NormFamily::rms && model.activation == ActivationFamily::clamped_swiglu &&
         model.has_experts() && model.normalised_experts && !model.sigmoid_router && model.sinks &&
         model.bias && model.qkv_bias && !model.qk_norm && model.attention_scale == 0 &&
         model.attention_cap == 0 && model.logits_cap == 0 && model.embedding_scale == 1 &&
         model.learned_positions == 0 && model.kinds.front().rotary.fraction == 1;
}

bool is_yarn(const RotarySpec& rotary) {
  return rotary.scaling == RotaryScaling::yarn || rotary.scaling == RotaryScaling::yarn_exact;
}

// Phi stores the projections of Llama side by side. transformers takes its yarn for longrope.
bool is_phi(const ModelSpec& model) {
  const RotarySpec& rotary = model.kinds.front().rotary;
  const bool magnified = rotary.magnitude != 1 && !is_longrope(rotary);
  if (magnified || (rotary.factor != 1 && is_yarn(rotary))) return false;
  return model.family == Family::phi && model.kinds.size() == 1 && !model.qk_norm &&
         !model.qkv_bias && model.head_dim * model.heads == model.hidden;
}

// The root of the hidden size multiplies embeddings. In Gemma 3 layers with a window have plain
// frequencies; in Gemma 2 all layers have the same.
bool is_gemma(const ModelSpec& model) {
  const double scale = std::sqrt(static_cast<double>(model.hidden));
  const double scalar = 1 / (model.score_scale() * model.score_scale());  // its key is an integer
  std::int64_t windows = 0;
  for (const LayerKind& kind : model.kinds) {
    if (kind.rotary.fraction != 1 || is_longrope(kind.rotary)) return false;
    if (kind.window == 0) continue;
    ++windows;
    if (!model.qk_norm) continue;
    if (kind.rotary.factor != 1 || kind.rotary.magnitude != 1) return false;
  }
  const bool capped = model.attention_cap > 0 || model.logits_cap > 0;
  if (model.qk_norm ? capped : !has_one_window(model)) return false;
  return model.family == Family::gemma && model.kinds.size() <= 2 && windows == 1 &&
         model.norm == NormFamily::rms && model.activation == ActivationFamily::geglu_tanh &&
         model.pre_norms && model.post_norms && !model.sinks && !model.qkv_bias && !model.bias &&
         !model.parallel_residual && model.learned_positions == 0 &&
         std::abs(model.embedding_scale - scale) < 1e-9 * scale &&
         std::abs(scalar - std::round(scalar)) < 1e-9 * scalar;
}

// The properties that gpt2 and gpt_neox share.
bool is_gpt(const ModelSpec& model) {
  return is_plain(model) && model.kinds.size() == 1 && model.kinds.front().window == 0 &&
         model.norm == NormFamily::layer && !model.is_gated() && model.bias && model.qkv_bias &&
         !model.qk_norm && model.kv_heads == model.heads && model.q_width() == model.hidden;
}

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

// Among the scalings that transformers knows, only yarn and longrope have a magnitude. With a
// factor of 1 the others differ in nothing else.
void require_magnitude(const ModelSpec& model, const RotarySpec& rotary) {
  if (rotary.fraction == 0 || rotary.magnitude == 1 || rotary.factor == 1 || is_yarn(rotary)) {
    return;  // longrope's factor is 1
  }
  throw InputError(
      fmt::format("model {}: rotary.magnitude {} beside scaling {} with factor {}: no Hugging Face "
                  "family computes that; expected magnitude 1, factor 1 or scaling yarn",
                  model.name, rotary.magnitude, word(rotary.scaling), rotary.factor));
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

void add_experts(Config& config, const ModelSpec& model) {
  add_balance(config, model);
  if (is_minimax(model)) {
    config["num_local_experts"] = model.experts;
    config["rotary_dim"] = model.rotary_dim(model.kinds.front());
    config["scoring_func"] = "sigmoid";
    config["use_routing_bias"] = config["use_qk_norm"] = true;
    config["qk_norm_type"] = "per_layer";
    return;
  }
  if (is_mixtral(model)) {
    config["num_local_experts"] = model.experts;
    const std::int64_t window = model.kinds.front().window;
    config["sliding_window"] = window > 0 ? Config(window) : Config(nullptr);
    return;
  }
  config["num_experts"] = model.experts;
  if (is_qwen_moe(model)) config["moe_intermediate_size"] = model.feed_forward;
  config["norm_topk_prob"] = model.normalised_experts;
  if (is_olmoe(model)) return;
  config["decoder_sparse_step"] = 1;
  config["mlp_only_layers"] = Config::array();
  config["use_sliding_window"] = false;
}

Config llama_config(const ModelSpec& model) {
  const bool windows = window_of(model) > 0;
  const auto [type, name] = is_minimax(model)    ? std::pair("minimax_m2", "MiniMaxM2")
                            : is_mixtral(model)  ? std::pair("mixtral", "Mixtral")
                            : is_qwen_moe(model) ? std::pair("qwen3_moe", "Qwen3Moe")
                            : is_olmoe(model)    ? std::pair("olmoe", "Olmoe")
                            : model.qk_norm      ? std::pair("qwen3", "Qwen3")
                            : model.qkv_bias     ? std::pair("qwen2", "Qwen2")
                            : windows            ? std::pair("mistral", "Mistral")
                                                 : std::pair("llama", "Llama");
  Config config = common_config(model, type, name);
  config["rope_theta"] = model.kinds.front().rotary.theta;
  add_scaling(config, model.kinds.front().rotary);
  const bool llama = std::string_view(type) == "llama";
  if (llama || model.qk_norm) config["attention_bias"] = false;
  if (llama) config["mlp_bias"] = false;
  if (model.has_experts()) {
    add_experts(config, model);
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
  switch (hf_family(model)) {
    case HfFamily::llama:
    case HfFamily::mixtral:
    case HfFamily::qwen3_moe:
    case HfFamily::olmoe:
    case HfFamily::minimax_m2:
      return llama_config(model);
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

HfFamily hf_family(const ModelSpec& model) {
  for (const LayerKind& kind : model.kinds) require_magnitude(model, kind.rotary);
  if (is_llama(model) && model.family == Family::llama) {
    if (!model.has_experts()) return HfFamily::llama;
    if (is_mixtral(model)) return HfFamily::mixtral;
    if (is_qwen_moe(model)) return HfFamily::qwen3_moe;
    if (is_olmoe(model)) return HfFamily::olmoe;
  }
  if (is_minimax(model)) return HfFamily::minimax_m2;
  if (is_olmo(model)) return window_of(model) > 0 ? HfFamily::olmo3 : HfFamily::olmo2;
  if (is_gpt_oss(model)) return HfFamily::gpt_oss;
  if (is_llama(model) && is_phi(model) && !model.has_experts()) return HfFamily::phi3;
  if (is_gemma(model) && !model.has_experts() && !model.joint_qk_norm)
    return model.qk_norm ? HfFamily::gemma3 : HfFamily::gemma2;
  if (is_gpt(model) && model.learned_positions > 0 && model.kinds.front().rotary.fraction == 0 &&
      !model.parallel_residual) {
    return HfFamily::gpt2;
  }
  if (is_gpt(model) && model.learned_positions == 0 && model.kinds.front().rotary.fraction > 0) {
    return HfFamily::gpt_neox;
  }
  throw InputError(fmt::format(
      "model {}: no Hugging Face family computes the same; known are llama, mistral, phi3, qwen2 "
      "and qwen3 (rms norm, swiglu, whole rotary, no biases but of qkv or norms of heads), mixtral "
      "(with experts of normalised weights, no norms of heads), qwen3_moe (with experts, norms of "
      "heads, no windows), olmoe (with experts, joint norms of heads as wide as the stream), "
      "minimax_m2 (with experts, joint norms of heads, sigmoid_router), olmo2 and olmo3 (joint "
      "norms of heads, norms of outputs alone, windows with plain rotary), "
      "gpt_oss "
      "(sinks, windows, experts of normalised weights, clamped_swiglu, biases), gemma2 and gemma3 "
      "(windows, geglu_tanh, post norms, scaled embeddings, soft caps or norms of heads), gpt2 "
      "(layer norm, gelu, biases, learned positions), gpt_neox (layer norm, gelu, biases, rotary)",
      model.name));
}

std::string hf_config_json(const ModelSpec& model) {
  Config config = family_config(model);
  config["vocab_size"] = model.vocabulary;
  config["tie_word_embeddings"] = model.tied_embeddings;
  return config.dump(2) + "\n";
}

}  // namespace fpdt
