// Keys that every family refuses, and keys that have no effect.
#include "fpdt/io/hf_reader.h"

#include <array>

#include <fmt/format.h>

namespace fpdt {
namespace {

// Keys that change neither the mathematics nor the sizes of training.
constexpr std::array<std::string_view, 36> kNeutral{"architectures",
                                                    "model_type",
                                                    "torch_dtype",
                                                    "dtype",
                                                    "transformers_version",
                                                    "_name_or_path",
                                                    "bos_token_id",
                                                    "eos_token_id",
                                                    "pad_token_id",
                                                    "use_cache",
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
                                                    "id2label",
                                                    "label2id",
                                                    "problem_type",
                                                    "gradient_checkpointing",
                                                    "classifier_dropout",
                                                    "max_position_embeddings",
                                                    "reorder_and_upcast_attn",
                                                    "is_decoder",
                                                    "attn_implementation",
                                                    "_attn_implementation",
                                                    "_attn_implementation_autoset",
                                                    "_flash_attn_2_enabled",
                                                    "use_flash_attention_2",
                                                    "use_flash_attn"};

// Keys of other models. They are harmless when `neutral`, null, false, or an empty list or map.
struct Foreign {
  std::string_view key, what;
  double neutral = 0;
};
constexpr std::array<Foreign, 39> kForeign{{
    {"quantization_config", "quantised weights"},
    {"num_local_experts", "experts"},
    {"num_shared_experts", "shared experts"},
    {"n_shared_experts", "shared experts"},
    {"shared_expert_intermediate_size", "a shared expert"},
    {"num_experts", "experts"},
    {"num_experts_per_tok", "experts"},
    {"n_routed_experts", "experts"},
    {"moe_intermediate_size", "experts"},
    {"attn_logit_softcapping", "soft capping of attention scores"},
    {"final_logit_softcapping", "soft capping of logits"},
    {"alibi", "ALiBi"},
    {"use_alibi", "ALiBi"},
    {"attention_chunk_size", "chunked attention"},
    {"dual_chunk_attention_config", "dual chunk attention"},
    {"no_rope_layers", "layers without rotary embedding"},
    {"layer_scale", "scaled layers"},
    {"clip_qkv", "clipping of q, k and v"},
    {"qk_layernorm", "this norm of q and k"},
    {"use_qk_norm", "this norm of q and k"},
    {"use_qkv_bias", "this bias"},
    {"parallel_attn", "this form of parallel residual"},
    {"rope_interleaved", "rotary embedding of neighbouring pairs"},
    {"embedding_multiplier", "scaled embeddings", 1},
    {"residual_multiplier", "scaled residuals", 1},
    {"attention_multiplier", "another scale of attention", 0},
    {"logits_scaling", "scaled logits", 1},
    {"logit_scale", "scaled logits", 1},
    {"num_nextn_predict_layers", "prediction of several tokens"},
    {"kv_lora_rank", "latent attention"},
    {"layerdrop", "dropping of layers"},
    {"hidden_dropout_prob", "dropout"},
    {"attention_probs_dropout_prob", "dropout"},
    {"is_encoder_decoder", "an encoder"},
    {"cross_attention_hidden_size", "cross attention"},
    {"mlp_bias", "biases of the feed-forward"},
    {"lm_head_bias", "a bias of the head"},
    {"full_attn_mod", "windows of some layers", 1},
    {"interpolate_factor", "another stretching of frequencies", 1},
}};

bool is_harmless(const Node& node, double neutral) {
  if (node.kind == NodeKind::list || node.kind == NodeKind::map) return node.items.empty();
  bool flag = true;
  double number = neutral + 1;
  if (convert(node, flag)) return !flag;
  return convert(node, number) && number == neutral;
}

// The name of an unknown key may still say that it changes attention.
bool speaks_of_attention(std::string_view key) {
  return key.find("attn") != key.npos || key.find("attention") != key.npos;
}

}  // namespace

void ConfigReader::refuse(std::string_view key, std::string_view why) {
  const Node* node = root_.find(key);
  findings().add("Y105", node != nullptr ? *node : root_, fmt::format("{}: {}", key, why));
}

void ConfigReader::require(std::string_view key, bool wanted, bool standard) {
  if (value(key, standard) != wanted) refuse(key, fmt::format("only {} is supported", wanted));
}

void ConfigReader::dropout(std::string_view key, double standard) {
  const double rate = value(key, standard);
  if (rate == 0) return;
  if (rate == standard) {
    note(fmt::format("{}: {} is taken as 0, dropout is not supported", key, rate));
  } else {
    refuse(key, fmt::format("dropout {} is not supported, expected 0", rate));
  }
}

void ConfigReader::note_default(std::string_view key, const std::string& value) {
  defaults_ += fmt::format("{}{} {}", defaults_.empty() ? "" : ", ", key, value);
}

void ConfigReader::check_code(std::string_view type) {
  const Node* code = find("auto_map");
  const Node* model = code == nullptr ? nullptr : code->find("AutoModelForCausalLM");
  if (model == nullptr) return;
  // Phi 3 and 4 mini were published with the code that became that of transformers.
  if (type == "phi3" && model->text.ends_with("modeling_phi3.Phi3ForCausalLM")) {
    note("auto_map: the model's own code is taken for that of transformers");
  } else {
    refuse("auto_map", "the model brings its own code, which may compute something else");
  }
}

void ConfigReader::done(std::string_view type) {
  if (!defaults_.empty()) {
    note(fmt::format("the config leaves sizes out; planned with the defaults of {}: {}", type,
                     defaults_));
  }
  for (const Foreign& one : kForeign) {
    if (fields_.knows(one.key)) continue;  // a key of this family
    const Node* node = find(one.key);
    if (node == nullptr || is_harmless(*node, one.neutral)) continue;
    refuse(one.key, fmt::format("not supported ({})", one.what));
  }
  check_code(type);
  const double deviation = value("initializer_range", 0.02);
  if (deviation != 0.02) {
    note(fmt::format("initializer_range: {} is taken as 0.02 for new weights", deviation));
  }
  for (const std::string_view key : kNeutral) fields_.find(key);
  for (const Node& item : root_.items) {
    if (item.kind == NodeKind::null || fields_.knows(item.key)) continue;
    if (speaks_of_attention(item.key) && !is_harmless(item, 0)) {
      refuse(item.key, "unknown key, which by its name changes attention");
    } else {
      note(fmt::format("{}: unknown key, ignored", item.key));
    }
  }
}

}  // namespace fpdt
