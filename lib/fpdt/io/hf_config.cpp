// The families of Hugging Face configs, their defaults, and the settings that are refused.
#include "fpdt/io/hf_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include <fmt/format.h>

#include "fpdt/io/hf_reader.h"
#include "fpdt/io/json.h"
#include "fpdt/schedule/op.h"

namespace fpdt {
namespace {

constexpr std::array<std::string_view, 18> kTypes{
    "gpt2",  "gpt_neox",   "llama",  "mistral",     "qwen2",   "qwen3",
    "phi3",  "gemma2",     "gemma3", "gemma3_text", "mixtral", "qwen3_moe",
    "olmoe", "minimax_m2", "olmo2",  "olmo3",       "gpt_oss", "glm4_moe"};

// Model types that users will try, with the reason why they are refused.
struct ForeignType {
  std::string_view start, why;
};
constexpr std::array<ForeignType, 10> kForeignTypes{{
    {"qwen2_moe", "shared experts are not supported"},
    {"qwen3_next", "linear attention is not supported"},
    {"deepseek", "latent attention is not supported"},
    {"llama4", "chunked attention is not supported"},
    {"gemma", "only Gemma 2 and 3 are supported"},
    {"phi", "its experts or its biases are not supported"},
    {"falcon", "its fused attention and ALiBi are not supported"},
    {"bloom", "ALiBi is not supported"},
    {"mpt", "ALiBi is not supported"},
    {"gptj", "one norm for attention and feed-forward is not supported"},
}};

void check_activation(ConfigReader& config, std::string_view key, std::string_view found,
                      std::string_view wanted) {
  if (found != wanted) {
    config.refuse(key, fmt::format("expected \"{}\", found \"{}\"", wanted, found));
  }
}

// The names of transformers' activations for the two forms of gelu.
ActivationFamily read_gelu(ConfigReader& config, std::string_view key, std::string standard) {
  const std::string name = config.value(key, std::move(standard));
  if (name == "gelu" || name == "gelu_python") return ActivationFamily::gelu_erf;
  if (name != "gelu_fast" && name != "gelu_pytorch_tanh") {
    check_activation(config, key, name, "gelu_new");
  }
  return ActivationFamily::gelu_tanh;
}

struct LlamaDefaults {
  std::int64_t feed_forward, vocabulary;
  std::int64_t kv_heads = 0;  // 0: as many as heads
  std::int64_t head_dim = 0;  // 0: hidden / heads
};

LlamaDefaults llama_defaults(std::string_view type) {
  if (type == "mistral") return {14336, 32000, 8};
  if (type == "qwen2") return {22016, 151936, 32};
  if (type == "qwen3") return {22016, 151936, 32, 128};
  if (type == "phi3") return {8192, 32064};
  if (type == "mixtral") return {14336, 32000, 8};
  if (type == "qwen3_moe") return {6144, 151936, 4};
  if (type == "olmoe") return {2048, 50304};
  if (type == "minimax_m2") return {1536, 200064, 8, 128};
  if (type == "glm4_moe") return {10944, 151552, 8};
  if (type == "olmo2" || type == "olmo3") return {11008, 50304};
  return {11008, 32000};
}

// Weights may be of fewer bits, which the reader of weights decodes.
void read_quantization(ConfigReader& config, std::string_view method) {
  const Node* quantization = config.find("quantization_config");
  if (quantization == nullptr || quantization->kind == NodeKind::null) return;
  const Node* found = quantization->find("quant_method");
  if (found == nullptr || found->text != method) {
    return config.refuse("quantization_config", fmt::format("only {} is supported", method));
  }
  const Node* square = quantization->find("weight_block_size");
  if (square != nullptr && (square->items.size() != 2 || square->items[0].text != "128" ||
                            square->items[1].text != "128")) {
    return config.refuse("quantization_config", "expected a weight_block_size of [128, 128]");
  }
  config.note(fmt::format("weights in {} are decoded, and saved without quantisation", method));
}

// Attention with sinks, in every other layer with a window, and experts with biases.
void read_gpt_oss(ConfigReader& config, ModelSpec& model) {
  model.family = Family::llama;
  model.hidden = config.size("hidden_size", std::int64_t{2880});
  model.layers = config.size("num_hidden_layers", std::int64_t{36});
  model.heads = config.size("num_attention_heads", std::int64_t{64});
  model.kv_heads = config.size("num_key_value_heads", std::int64_t{8});
  model.head_dim = config.size("head_dim", std::int64_t{64});
  model.feed_forward = config.size("intermediate_size", std::int64_t{2880});
  model.vocabulary = config.size("vocab_size", std::int64_t{201088});
  model.experts = config.size("num_local_experts", std::int64_t{128});
  model.active_experts = config.size("num_experts_per_tok", std::int64_t{4});
  if (config.value("experts_per_token", model.active_experts) != model.active_experts) {
    config.refuse("experts_per_token", "disagrees with num_experts_per_tok");
  }
  read_balance(config, model);
  model.norm = NormFamily::rms;
  model.norm_epsilon = config.value("rms_norm_eps", 1e-5);
  model.activation = ActivationFamily::clamped_swiglu;
  check_activation(config, "hidden_act", config.value("hidden_act", std::string("silu")), "silu");
  for (const auto& [key, wanted] :
       {std::pair("swiglu_alpha", kClampRate), {"swiglu_limit", kClampLimit}}) {
    if (config.value(key, wanted) != wanted) {
      config.refuse(key, fmt::format("only {} is supported", wanted));
    }
  }
  model.qkv_bias = model.bias = model.sinks = true;
  config.require("attention_bias", true, true);
  model.tied_embeddings = config.value("tie_word_embeddings", false);
  config.dropout("attention_dropout", 0);
  config.find("initial_context_length");  // of the scaling, which says it as well
  RotarySpec yarn;
  yarn.scaling = RotaryScaling::yarn_exact;
  yarn.factor = 32;
  yarn.high_frequency_factor = 32;
  yarn.original_positions = 4096;
  yarn.magnitude = 0.1 * std::log(yarn.factor) + 1;
  RotarySpec& rotary = model.kinds.front().rotary;
  rotary = read_rotary(config, {.standard_theta = 150000});
  if (!config.has("rope_scaling") && !config.has("rope_parameters")) {
    yarn.theta = rotary.theta;
    yarn.fraction = rotary.fraction;
    rotary = yarn;
  }
  if (rotary.fraction != 1) {
    config.refuse("partial_rotary_factor", "gpt_oss turns whole heads, expected 1");
  }
  read_quantization(config, "mxfp4");
  read_periodic_windows(config, 128, 2, model);
}

// Every fourth layer of OLMo 3 sees all tokens, with frequencies that may be stretched; the others
// see a window, with plain ones. rope_theta is of all layers in transformers 4, and of those that
// see all tokens in version 5.
void read_olmo3_kinds(ConfigReader& config, ModelSpec& model) {
  RotarySpec plain;
  plain.fraction = 1;
  plain.theta = kOlmo3Theta;
  std::optional<RotarySpec> full = read_rotary_of(config, "full_attention", plain);
  const RotarySpec local = read_rotary_of(config, "sliding_attention", plain).value_or(plain);
  if (!full) full = read_rotary(config, {.standard_theta = kOlmo3Theta});
  if (full->theta != local.theta) {
    config.refuse("rope_theta",
                  "of layers with a window it is another, or depends on the version "
                  "of transformers");
  }
  if (!read_periodic_windows(config, 4096, 4, model)) return;
  for (LayerKind& kind : model.kinds) kind.rotary = kind.window > 0 ? local : *full;
}

// One embedding for all layers.
void read_rotary_of_llama(ConfigReader& config, std::string_view type, ModelSpec& model) {
  const bool minimax = type == "minimax_m2", glm = type == "glm4_moe";
  RotaryKeys keys{.standard_theta = type == "mixtral" ? 1e6 : minimax ? 5e6 : 1e4};
  if (minimax && config.has("rotary_dim")) {
    keys.standard_fraction = static_cast<double>(config.value("rotary_dim", model.head_dim)) /
                             static_cast<double>(std::max<std::int64_t>(1, model.head_dim));
  }
  if (glm) keys.standard_fraction = 0.5;
  model.kinds.front().rotary = read_rotary(config, keys);
  if (type != "phi3" && !minimax && !glm && model.kinds.front().rotary.fraction != 1) {
    config.refuse("partial_rotary_factor", fmt::format("{} turns whole heads, expected 1", type));
  }
}

// llama, mistral, phi3, qwen2, qwen3 and olmo2 differ only in defaults, biases, norms, windows and
// names, olmo3 in kinds of layers besides; mixtral, qwen3_moe, olmoe, minimax_m2 and glm4_moe have
// experts besides.
void read_llama(ConfigReader& config, std::string_view type, ModelSpec& model) {
  const LlamaDefaults standard = llama_defaults(type);
  const bool phi = type == "phi3", mixtral = type == "mixtral", qwen_moe = type == "qwen3_moe";
  const bool olmoe = type == "olmoe", olmo3 = type == "olmo3", olmo = olmo3 || type == "olmo2";
  const bool minimax = type == "minimax_m2", glm = type == "glm4_moe";
  model.family = phi ? Family::phi : Family::llama;
  model.hidden = config.size("hidden_size", std::int64_t{phi || minimax      ? 3072
                                                         : qwen_moe || olmoe ? 2048
                                                                             : 4096});
  model.layers = config.size("num_hidden_layers", std::int64_t{qwen_moe  ? 24
                                                               : olmoe   ? 16
                                                               : minimax ? 62
                                                               : glm     ? 46
                                                                         : 32});
  model.heads = config.size("num_attention_heads", std::int64_t{olmoe     ? 16
                                                                : minimax ? 48
                                                                : glm     ? 96
                                                                          : 32});
  // An explicit null means as many KV heads as heads; an absent key means the class default.
  const bool absent = !config.has("num_key_value_heads");
  const std::int64_t kv_heads = absent && standard.kv_heads > 0 ? standard.kv_heads : model.heads;
  model.kv_heads = absent ? config.size("num_key_value_heads", kv_heads)
                          : config.value("num_key_value_heads", kv_heads);
  const std::int64_t heads = model.heads > 0 ? model.heads : 1;
  model.head_dim = standard.head_dim > 0 ? config.size("head_dim", standard.head_dim)
                                         : config.value("head_dim", model.hidden / heads);
  model.feed_forward = config.size("intermediate_size", standard.feed_forward);
  model.vocabulary = config.size("vocab_size", standard.vocabulary);
  model.norm = NormFamily::rms;
  model.norm_epsilon =
      config.value("rms_norm_eps", phi || mixtral || olmoe || olmo || glm ? 1e-5 : 1e-6);
  model.joint_qk_norm = olmoe || olmo || minimax;
  model.qk_norm = model.joint_qk_norm || type.starts_with("qwen3") ||
                  (glm && config.value("use_qk_norm", false));
  model.pre_norms = !olmo;
  model.post_norms = olmo;
  model.activation = ActivationFamily::swiglu;
  check_activation(config, "hidden_act", config.value("hidden_act", std::string("silu")), "silu");
  model.tied_embeddings = config.size("tie_word_embeddings", false);
  if (!olmo3) read_rotary_of_llama(config, type, model);
  config.dropout("attention_dropout", 0);
  if (phi) {
    config.dropout("resid_pdrop", 0);
    config.dropout("embd_pdrop", 0);
    config.find("original_max_position_embeddings");  // of longrope
    if (model.kinds.front().rotary.scaling == RotaryScaling::yarn) {
      config.refuse("rope_scaling", "transformers takes the yarn of phi3 for longrope");
    }
  }
  model.qkv_bias = type == "qwen2" || (glm && config.value("attention_bias", false));
  if (config.value("attention_bias", model.qkv_bias) != model.qkv_bias) {
    config.refuse("attention_bias",
                  fmt::format("only {} is supported: a bias of the output projection requires "
                              "one of the feed-forward",
                              model.qkv_bias));
  }
  if (type == "llama") config.require("mlp_bias", false, false);
  if (olmoe && model.q_width() != model.hidden) {
    config.refuse("head_dim",
                  "olmoe norms hidden_size columns of queries, expected hidden_size / "
                  "num_attention_heads");
  }
  if (mixtral || qwen_moe || olmoe || minimax) read_experts(config, type, model);
  read_quantization(config, "fp8");
  if (glm) return read_glm_experts(config, model);
  olmo3 ? read_olmo3_kinds(config, model) : read_windows(config, type, model);
}

// Every other layer of Gemma 2 has a window, beginning with the first. Gemma 3 has five with a
// window to one without, each kind with rotary frequencies of its own.
void read_gemma_kinds(ConfigReader& config, bool second, ModelSpec& model) {
  RotarySpec full, local;
  full.fraction = local.fraction = 1;
  full.theta = config.value("rope_theta", second ? 1e4 : 1e6);
  if (const auto listed = read_rotary_of(config, "full_attention", full)) {
    full = *listed;
  } else {
    full = read_rotary(config, {.standard_theta = second ? 1e4 : 1e6});
  }
  if (second) {
    local = full;
  } else {
    local.theta = config.value("rope_local_base_freq", 1e4);
    local = read_rotary_of(config, "sliding_attention", local).value_or(local);
  }
  const std::int64_t each =
      second ? 2
             : config.value("sliding_window_pattern",
                            config.value("_sliding_window_pattern", std::int64_t{6}));
  if (!read_periodic_windows(config, 4096, each, model)) return;
  for (LayerKind& kind : model.kinds) kind.rotary = kind.window > 0 ? local : full;
}

// 0 without a cap, which a config says by null.
double read_cap(ConfigReader& config, std::string_view key, double standard) {
  return config.value(key, config.has(key) ? 0.0 : standard);
}

void read_gemma(ConfigReader& config, bool second, ModelSpec& model) {
  model.family = Family::gemma;
  model.hidden = config.size("hidden_size", std::int64_t{2304});
  model.layers = config.size("num_hidden_layers", std::int64_t{26});
  model.heads = config.size("num_attention_heads", std::int64_t{8});
  model.kv_heads = config.size("num_key_value_heads", std::int64_t{4});
  model.head_dim = config.size("head_dim", std::int64_t{256});
  model.feed_forward = config.size("intermediate_size", std::int64_t{9216});
  model.vocabulary = config.size("vocab_size", std::int64_t{second ? 256000 : 262208});
  model.norm = NormFamily::rms;
  model.norm_epsilon = config.value("rms_norm_eps", 1e-6);
  model.qk_norm = !second;
  model.post_norms = true;
  model.activation = ActivationFamily::geglu_tanh;
  check_activation(config, "hidden_activation",
                   config.value("hidden_activation", std::string("gelu_pytorch_tanh")),
                   "gelu_pytorch_tanh");
  model.tied_embeddings = config.value("tie_word_embeddings", true);
  const auto scalar = config.value("query_pre_attn_scalar", 256.0);
  if (!(scalar > 0)) config.refuse("query_pre_attn_scalar", "expected a positive number");
  const bool usual = scalar == static_cast<double>(model.head_dim);
  model.attention_scale = usual || !(scalar > 0) ? 0 : 1 / std::sqrt(scalar);
  model.embedding_scale = std::sqrt(static_cast<double>(std::max<std::int64_t>(1, model.hidden)));
  if (second) {
    model.attention_cap = read_cap(config, "attn_logit_softcapping", 50);
    model.logits_cap = read_cap(config, "final_logit_softcapping", 30);
  }
  config.require("attention_bias", false, false);
  config.require("use_bidirectional_attention", false, false);
  config.dropout("attention_dropout", 0);
  for (const std::string_view key : {"cache_implementation", "hidden_act"})
    config.find(key);  // unused
  read_gemma_kinds(config, second, model);
}

void read_gpt2(ConfigReader& config, ModelSpec& model) {
  model.family = Family::gpt;
  model.hidden = config.size("n_embd", std::int64_t{768});
  model.layers = config.size("n_layer", std::int64_t{12});
  model.heads = model.kv_heads = config.size("n_head", std::int64_t{12});
  model.head_dim = model.heads > 0 ? model.hidden / model.heads : 0;
  model.feed_forward = config.value("n_inner", 4 * model.hidden);
  model.vocabulary = config.size("vocab_size", std::int64_t{50257});
  model.norm = NormFamily::layer;
  model.norm_epsilon = config.value("layer_norm_epsilon", 1e-5);
  model.activation = read_gelu(config, "activation_function", "gelu_new");
  model.qkv_bias = model.bias = true;
  model.learned_positions = config.size("n_positions", std::int64_t{1024});
  model.tied_embeddings = config.value("tie_word_embeddings", true);
  for (const std::string_view key : {"attn_pdrop", "embd_pdrop", "resid_pdrop"})
    config.dropout(key, 0.1);
  config.require("scale_attn_weights", true, true);
  config.require("scale_attn_by_inverse_layer_idx", false, false);
  config.require("add_cross_attention", false, false);
}

void read_gpt_neox(ConfigReader& config, ModelSpec& model) {
  model.family = Family::gpt;
  model.hidden = config.size("hidden_size", std::int64_t{6144});
  model.layers = config.size("num_hidden_layers", std::int64_t{44});
  model.heads = model.kv_heads = config.size("num_attention_heads", std::int64_t{64});
  model.head_dim = model.heads > 0 ? model.hidden / model.heads : 0;
  model.feed_forward = config.size("intermediate_size", std::int64_t{24576});
  model.vocabulary = config.size("vocab_size", std::int64_t{50432});
  model.norm = NormFamily::layer;
  model.norm_epsilon = config.value("layer_norm_eps", 1e-5);
  model.activation = read_gelu(config, "hidden_act", "gelu");
  model.qkv_bias = model.bias = true;
  config.require("attention_bias", true, true);
  model.parallel_residual = config.value("use_parallel_residual", true);
  model.kinds.front().rotary = read_rotary(config, {"rotary_emb_base", "rotary_pct", 0.25});
  model.tied_embeddings = config.size("tie_word_embeddings", false);
  config.dropout("attention_dropout", 0);
  config.dropout("hidden_dropout", 0);
}

// Names the reason if it is known, else the nearest supported type.
void refuse_type(ConfigReader& config, std::string_view type) {
  for (const ForeignType& one : kForeignTypes) {
    if (!type.starts_with(one.start)) continue;
    return config.refuse("model_type", fmt::format("\"{}\": {}; known are {}", type, one.why,
                                                   fmt::join(kTypes, ", ")));
  }
  const std::string nearest = nearest_word(type, kTypes);
  config.refuse("model_type",
                fmt::format("expected one of {}, found \"{}\"{}", fmt::join(kTypes, ", "), type,
                            nearest.empty() ? "" : fmt::format("; did you mean \"{}\"?", nearest)));
}

std::string model_type(const Node& root, FileFindings& findings) {
  const Node* type = root.find("model_type");
  if (type == nullptr || type->kind != NodeKind::text) {
    findings.add("Y104", root, "model_type: this key is required");
    findings.raise();
  }
  return type->text;
}

// The title of a model whose config does not give one: the folder of its config.json, or the name
// of another file.
std::string title(std::string_view file_name, const std::string& type) {
  std::error_code failure;
  const std::filesystem::path file =
      std::filesystem::absolute(file_name, failure).lexically_normal();
  const std::string name =
      (file.filename() == "config.json" ? file.parent_path().filename() : file.stem()).string();
  return name.empty() ? type : name;
}

}  // namespace

ModelSpec parse_hf_config(std::string_view text, std::string_view file_name,
                          std::vector<std::string>& notes) {
  FileFindings findings(file_name);
  const Node root = parse_json(text, findings);
  const std::string type = model_type(root, findings);
  // The model for images and text has the keys of the latter in a map.
  const Node* of_text = type == "gemma3" ? text_config(root) : nullptr;
  if (type == "gemma3" && of_text == nullptr) {
    findings.add("Y104", root, "text_config: this key is required");
    findings.raise();
  }
  ConfigReader config(of_text == nullptr ? root : *of_text, findings, notes);
  ModelSpec model;
  model.name = config.value("_name_or_path", std::string());
  if (model.name.empty()) model.name = title(file_name, type);
  model.source = fmt::format("Hugging Face config {}", file_name);
  if (type == "gpt2") {
    read_gpt2(config, model);
  } else if (type == "gpt_neox") {
    read_gpt_neox(config, model);
  } else if (type.starts_with("gemma3") || type == "gemma2") {
    read_gemma(config, type == "gemma2", model);
    if (type == "gemma3") config.note("planned for the text alone, without images");
  } else if (type == "gpt_oss") {
    read_gpt_oss(config, model);
  } else if (std::find(kTypes.begin(), kTypes.end(), type) != kTypes.end()) {
    read_llama(config, type, model);
  } else {
    refuse_type(config, type);
    findings.raise();
  }
  config.done(type);
  findings.raise();
  findings.append(check(model));
  if (findings.empty() && type.starts_with("gpt") && model.hidden % model.heads != 0) {
    findings.add("Y106", root, "the hidden size is not a multiple of the number of heads");
  }
  findings.raise();
  return model;
}

}  // namespace fpdt
