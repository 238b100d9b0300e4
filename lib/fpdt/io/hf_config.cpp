// The keys of five Hugging Face families, their defaults, and what we refuse.
//
// A key that equals its class default may be absent from a config.json, so every read has the
// default of the class (transformers configuration_<family>.py). `null` counts as absent, as
// transformers writes it.
#include "fpdt/io/hf_config.h"

#include <array>
#include <cmath>

#include <fmt/format.h>

#include "fpdt/io/json.h"

namespace fpdt {
namespace {

constexpr std::array<std::string_view, 5> kTypes{"gpt2", "gpt_neox", "llama", "mistral", "qwen2"};

// Keys that change nothing about the mathematics or the sizes of training.
constexpr std::array<std::string_view, 33> kNeutral{"architectures",
                                                    "model_type",
                                                    "torch_dtype",
                                                    "dtype",
                                                    "transformers_version",
                                                    "_name_or_path",
                                                    "bos_token_id",
                                                    "eos_token_id",
                                                    "pad_token_id",
                                                    "use_cache",
                                                    "initializer_range",
                                                    "pretraining_tp",
                                                    "task_specific_params",
                                                    "summary_activation",
                                                    "summary_first_dropout",
                                                    "summary_proj_to_labels",
                                                    "summary_type",
                                                    "summary_use_proj",
                                                    "n_ctx",
                                                    "output_attentions",
                                                    "output_hidden_states",
                                                    "return_dict",
                                                    "chunk_size_feed_forward",
                                                    "is_encoder_decoder",
                                                    "id2label",
                                                    "label2id",
                                                    "problem_type",
                                                    "gradient_checkpointing",
                                                    "classifier_dropout",
                                                    "max_window_layers",
                                                    "hidden_dropout_prob",
                                                    "attention_probs_dropout_prob",
                                                    "is_decoder"};

// Reads one config; every `number`, `flag` or `text` marks its key as understood.
class ConfigReader {
 public:
  ConfigReader(const Node& root, FileFindings& findings, std::vector<std::string>& notes)
      : root_(root), fields_(root, "", findings), notes_(notes) {}

  const Node* find(std::string_view key) {
    const Node* node = fields_.find(key);
    return node == nullptr || node->kind == NodeKind::null ? nullptr : node;
  }
  template <class T>
  T value(std::string_view key, T standard) {
    if (find(key) != nullptr) fields_.optional(key, standard);
    return standard;
  }
  void refuse(std::string_view key, std::string_view why) {
    const Node* node = root_.find(key);
    fields_.findings().add("Y105", node != nullptr ? *node : root_,
                           fmt::format("{}: {}", key, why));
  }
  // A switch that must have the one setting that we implement.
  void require(std::string_view key, bool wanted, bool standard) {
    if (value(key, standard) != wanted) refuse(key, fmt::format("only {} is supported", wanted));
  }
  // Dropout is refused; GPT-2's class default of 0.1, which nobody trains long sequences with, is
  // noted.
  void dropout(std::string_view key, double standard) {
    const double rate = value(key, standard);
    if (rate == 0) return;
    if (rate == standard) {
      notes_.push_back(fmt::format("{}: {} is taken as 0, dropout is not supported", key, rate));
    } else {
      refuse(key, fmt::format("dropout {} is not supported, expected 0", rate));
    }
  }
  void note(std::string text) { notes_.push_back(std::move(text)); }
  // Notes the keys that nobody asked for.
  void done() {
    for (const std::string_view key : kNeutral) fields_.find(key);
    for (const Node& item : root_.items) {
      if (item.kind == NodeKind::null || fields_.knows(item.key)) continue;
      note(fmt::format("{}: unknown key, ignored", item.key));
    }
  }
  Fields& fields() { return fields_; }

 private:
  const Node& root_;
  Fields fields_;
  std::vector<std::string>& notes_;
};

// What would make it another model.
void refuse_foreign(ConfigReader& config) {
  constexpr std::array<std::string_view, 10> keys{
      "quantization_config",     "num_local_experts",     "num_experts",
      "n_routed_experts",        "moe_intermediate_size", "attn_logit_softcapping",
      "final_logit_softcapping", "embedding_multiplier",  "residual_multiplier",
      "logits_scaling"};
  for (const std::string_view key : keys) {
    if (config.find(key) != nullptr) config.refuse(key, "this is not supported");
  }
}

// rope_scaling (with "type" as its older spelling) or rope_parameters: one map of scaling
// parameters.
RotarySpec read_scaling(ConfigReader& config, std::string_view key, const Node& node,
                        RotarySpec rotary) {
  Fields fields(node, std::string(key), config.fields().findings());
  std::string type = "default";
  fields.optional("type", type);
  fields.optional("rope_type", type);
  fields.optional("rope_theta", rotary.theta);
  fields.optional("partial_rotary_factor", rotary.fraction);
  if (type == "llama3") {
    fields.required("factor", rotary.factor);
    fields.required("low_freq_factor", rotary.low_frequency_factor);
    fields.required("high_freq_factor", rotary.high_frequency_factor);
    fields.required("original_max_position_embeddings", rotary.original_positions);
  } else if (type != "default") {
    config.refuse(
        key, fmt::format("rope type \"{}\" is not supported, expected default or llama3", type));
    return rotary;
  }
  fields.done();
  return rotary;
}

// Both generations of the fields: rope_theta + rope_scaling, and rope_parameters since
// transformers 5.
RotarySpec read_rotary(ConfigReader& config, std::string_view theta_key,
                       std::string_view fraction_key, double fraction) {
  RotarySpec older;
  older.theta = config.value(theta_key, 10000.0);
  older.fraction = config.value(fraction_key, fraction);
  const Node* scaling = config.find("rope_scaling");
  if (scaling != nullptr) older = read_scaling(config, "rope_scaling", *scaling, older);
  const Node* parameters = config.find("rope_parameters");
  if (parameters == nullptr) return older;
  RotarySpec standard;
  standard.fraction = fraction;
  const RotarySpec newer = read_scaling(config, "rope_parameters", *parameters, standard);
  const bool theta_disagrees = config.find(theta_key) != nullptr && older.theta != newer.theta;
  const bool fraction_disagrees =
      config.find(fraction_key) != nullptr && older.fraction != newer.fraction;
  RotarySpec merged = older;
  merged.theta = newer.theta;
  merged.fraction = newer.fraction;
  if (theta_disagrees || fraction_disagrees || (scaling != nullptr && !(merged == newer))) {
    config.refuse("rope_parameters",
                  fmt::format("disagrees with {}, rope_scaling or {}", theta_key, fraction_key));
  }
  return newer;
}

void check_activation(ConfigReader& config, std::string_view key, std::string_view found,
                      std::string_view wanted) {
  if (found != wanted) {
    config.refuse(key, fmt::format("expected \"{}\", found \"{}\"", wanted, found));
  }
}

struct LlamaDefaults {
  std::int64_t feed_forward, vocabulary, kv_heads;  // kv_heads 0: as many as heads
  bool tied;
};

// llama, mistral and qwen2 differ in defaults, biases and windows only.
void read_llama(ConfigReader& config, std::string_view type, ModelSpec& model) {
  const LlamaDefaults standard = type == "mistral" ? LlamaDefaults{14336, 32000, 8, false}
                                 : type == "qwen2" ? LlamaDefaults{22016, 151936, 32, false}
                                                   : LlamaDefaults{11008, 32000, 0, false};
  model.family = Family::llama;
  model.hidden = config.value("hidden_size", std::int64_t{4096});
  model.layers = config.value("num_hidden_layers", std::int64_t{32});
  model.heads = config.value("num_attention_heads", std::int64_t{32});
  // An explicit null means "as many as heads"; an absent key the class default.
  const bool absent = config.fields().find("num_key_value_heads") == nullptr;
  const std::int64_t kv_heads = absent && standard.kv_heads > 0 ? standard.kv_heads : model.heads;
  model.kv_heads = config.value("num_key_value_heads", kv_heads);
  const std::int64_t heads = model.heads > 0 ? model.heads : 1;
  model.head_dim = config.value("head_dim", model.hidden / heads);
  model.feed_forward = config.value("intermediate_size", standard.feed_forward);
  model.vocabulary = config.value("vocab_size", standard.vocabulary);
  model.norm = NormFamily::rms;
  model.norm_epsilon = config.value("rms_norm_eps", 1e-6);
  model.activation = ActivationFamily::swiglu;
  check_activation(config, "hidden_act", config.value("hidden_act", std::string("silu")), "silu");
  model.tied_embeddings = config.value("tie_word_embeddings", standard.tied);
  model.rotary = read_rotary(config, "rope_theta", "partial_rotary_factor", 1);
  config.find("max_position_embeddings");
  config.dropout("attention_dropout", 0);
  model.qkv_bias = type == "qwen2";
  if (config.value("attention_bias", model.qkv_bias) != model.qkv_bias) {
    config.refuse("attention_bias", "biases of the output projection alone are not supported");
  }
  if (type == "llama") config.require("mlp_bias", false, false);
  if (type == "qwen2") {
    config.require("use_sliding_window", false, false);
    config.find("sliding_window");
  } else if (config.find("sliding_window") != nullptr ||
             (type == "mistral" && !config.fields().has("sliding_window"))) {
    config.refuse("sliding_window", "windowed attention is not supported, expected null");
  }
  if (const Node* types = config.find("layer_types")) {
    for (const Node& item : types->items) {
      if (item.text == "full_attention") continue;
      config.refuse("layer_types", fmt::format("\"{}\" is not supported", item.text));
      break;
    }
  }
}

void read_gpt2(ConfigReader& config, ModelSpec& model) {
  model.family = Family::gpt;
  model.hidden = config.value("n_embd", std::int64_t{768});
  model.layers = config.value("n_layer", std::int64_t{12});
  model.heads = model.kv_heads = config.value("n_head", std::int64_t{12});
  model.head_dim = model.heads > 0 ? model.hidden / model.heads : 0;
  model.feed_forward = config.value("n_inner", 4 * model.hidden);
  model.vocabulary = config.value("vocab_size", std::int64_t{50257});
  model.norm = NormFamily::layer;
  model.norm_epsilon = config.value("layer_norm_epsilon", 1e-5);
  const std::string activation = config.value("activation_function", std::string("gelu_new"));
  model.activation =
      activation == "gelu" ? ActivationFamily::gelu_erf : ActivationFamily::gelu_tanh;
  if (activation != "gelu" && activation != "gelu_pytorch_tanh") {
    check_activation(config, "activation_function", activation, "gelu_new");
  }
  model.qkv_bias = model.bias = true;
  model.learned_positions = config.value("n_positions", std::int64_t{1024});
  model.tied_embeddings = config.value("tie_word_embeddings", true);
  for (const std::string_view key : {"attn_pdrop", "embd_pdrop", "resid_pdrop"})
    config.dropout(key, 0.1);
  config.require("scale_attn_weights", true, true);
  config.require("scale_attn_by_inverse_layer_idx", false, false);
  config.require("add_cross_attention", false, false);
  config.find("reorder_and_upcast_attn");  // a matter of precision
}

void read_gpt_neox(ConfigReader& config, ModelSpec& model) {
  model.family = Family::gpt;
  model.hidden = config.value("hidden_size", std::int64_t{6144});
  model.layers = config.value("num_hidden_layers", std::int64_t{44});
  model.heads = model.kv_heads = config.value("num_attention_heads", std::int64_t{64});
  model.head_dim = model.heads > 0 ? model.hidden / model.heads : 0;
  model.feed_forward = config.value("intermediate_size", std::int64_t{24576});
  model.vocabulary = config.value("vocab_size", std::int64_t{50432});
  model.norm = NormFamily::layer;
  model.norm_epsilon = config.value("layer_norm_eps", 1e-5);
  const std::string activation = config.value("hidden_act", std::string("gelu"));
  const bool erf = activation == "gelu";
  model.activation = erf ? ActivationFamily::gelu_erf : ActivationFamily::gelu_tanh;
  if (!erf && activation != "gelu_pytorch_tanh")
    check_activation(config, "hidden_act", activation, "gelu_new");
  model.qkv_bias = model.bias = true;
  config.require("attention_bias", true, true);
  config.require("use_parallel_residual", false, true);
  model.rotary = read_rotary(config, "rotary_emb_base", "rotary_pct", 0.25);
  model.tied_embeddings = config.value("tie_word_embeddings", false);
  config.find("max_position_embeddings");
  config.dropout("attention_dropout", 0);
  config.dropout("hidden_dropout", 0);
}

std::string model_type(const Node& root, FileFindings& findings) {
  const Node* type = root.find("model_type");
  if (type == nullptr || type->kind != NodeKind::text) {
    findings.add("Y104", root, "model_type: this key is required");
    findings.raise();
  }
  return type->text;
}

}  // namespace

ModelSpec parse_hf_config(std::string_view text, std::string_view file_name,
                          std::vector<std::string>& notes) {
  FileFindings findings(file_name);
  const Node root = parse_json(text, findings);
  const std::string type = model_type(root, findings);
  ConfigReader config(root, findings, notes);
  ModelSpec model;
  model.name = config.value("_name_or_path", std::string());
  if (model.name.empty()) model.name = type;
  model.source = fmt::format("Hugging Face config {}", file_name);
  refuse_foreign(config);
  if (type == "gpt2") {
    read_gpt2(config, model);
  } else if (type == "gpt_neox") {
    read_gpt_neox(config, model);
  } else if (type == "llama" || type == "mistral" || type == "qwen2") {
    read_llama(config, type, model);
  } else {
    const std::string nearest = nearest_word(type, kTypes);
    config.refuse(
        "model_type",
        fmt::format("expected one of {}, found \"{}\"{}", fmt::join(kTypes, ", "), type,
                    nearest.empty() ? "" : fmt::format("; did you mean \"{}\"?", nearest)));
  }
  findings.raise();
  config.done();
  findings.append(check(model));
  if (findings.empty() && type.starts_with("gpt") && model.hidden % model.heads != 0) {
    findings.add("Y106", root, "the hidden size is no multiple of the number of heads");
  }
  findings.raise();
  return model;
}

}  // namespace fpdt
