// Reads experts and their routers.
#include <algorithm>

#include <fmt/format.h>

#include "fpdt/io/hf_reader.h"

namespace fpdt {
namespace {

// The router of MiniMax-M2, and what it has not, though configs of MiniMax have keys for it.
void read_sigmoid_router(ConfigReader& config, ModelSpec& model) {
  model.sigmoid_router = true;
  if (model.balance_loss > 0) {
    config.refuse("output_router_logits", "a loss that balances sigmoids is not supported");
  }
  if (config.value("scoring_func", std::string("sigmoid")) != "sigmoid") {
    config.refuse("scoring_func", "expected sigmoid");
  }
  if (config.value("qk_norm_type", std::string("per_layer")) != "per_layer") {
    config.refuse("qk_norm_type", "expected per_layer");
  }
  config.require("use_routing_bias", true, true);
  config.require("use_qk_norm", true, true);
  if (config.value("shared_intermediate_size", std::int64_t{0}) != 0) {
    config.refuse("shared_intermediate_size", "shared experts are not supported, expected 0");
  }
  const Node* types = config.find("attn_type_list");
  if (types == nullptr || types->kind == NodeKind::null) return;
  if (types->kind != NodeKind::list ||
      std::any_of(types->items.begin(), types->items.end(),
                  [](const Node& type) { return type.text != "1"; })) {
    config.refuse("attn_type_list",
                  "linear attention is not supported, expected a 1 for each layer");
  }
}

}  // namespace

void read_balance(ConfigReader& config, ModelSpec& model, double standard) {
  const double balance = config.value("router_aux_loss_coef", standard);
  if (config.value("output_router_logits", false)) model.balance_loss = balance;
}

void read_experts(ConfigReader& config, std::string_view type, ModelSpec& model) {
  const bool qwen = type == "qwen3_moe", mixtral = type == "mixtral";
  const bool minimax = type == "minimax_m2";
  const auto standard = std::int64_t{qwen ? 128 : mixtral ? 8 : minimax ? 256 : 64};
  // Both names are in use; where both are given, they agree.
  model.experts = config.has("num_experts") ? config.value("num_experts", standard)
                                            : config.size("num_local_experts", standard);
  if (config.value("num_local_experts", model.experts) != model.experts) {
    config.refuse("num_local_experts", "disagrees with num_experts");
  }
  model.active_experts = config.size("num_experts_per_tok", std::int64_t{mixtral ? 2 : 8});
  read_balance(config, model, type == "olmoe" ? 0.01 : 0.001);
  if (minimax) read_sigmoid_router(config, model);
  if (mixtral || minimax) {
    if (config.value("router_jitter_noise", 0.0) != 0) {
      config.refuse("router_jitter_noise", "expected 0");
    }
    return;
  }
  model.normalised_experts = config.value("norm_topk_prob", false);
  if (!qwen) return;
  model.feed_forward = config.size("moe_intermediate_size", std::int64_t{768});
  config.require("use_sliding_window", false, false);
  if (config.value("decoder_sparse_step", std::int64_t{1}) != 1) {
    config.refuse("decoder_sparse_step", "layers without experts are not supported, expected 1");
  }
  const Node* dense = config.find("mlp_only_layers");
  if (dense != nullptr && (dense->kind != NodeKind::list || !dense->items.empty())) {
    config.refuse("mlp_only_layers", "layers without experts are not supported, expected none");
  }
}

void read_glm_experts(ConfigReader& config, ModelSpec& model) {
  const std::int64_t dense_width = model.feed_forward;
  model.experts = config.size("n_routed_experts", std::int64_t{128});
  if (config.value("num_local_experts", model.experts) != model.experts) {
    config.refuse("num_local_experts", "disagrees with n_routed_experts");
  }
  model.active_experts = config.size("num_experts_per_tok", std::int64_t{8});
  model.feed_forward = config.size("moe_intermediate_size", std::int64_t{1408});
  const std::int64_t shared = config.value("n_shared_experts", std::int64_t{1});
  if (shared < 1 || shared > kModelExpertsMost) {
    config.refuse("n_shared_experts", fmt::format("expected 1 to {}", kModelExpertsMost));
  }
  model.shared_feed_forward = shared * model.feed_forward;
  model.sigmoid_router = true;
  model.normalised_experts = config.value("norm_topk_prob", true);
  model.expert_scale = config.value("routed_scaling_factor", 1.0);
  config.value("output_router_logits", false);  // adds no loss
  for (const char* key : {"n_group", "topk_group"}) {
    if (config.value(key, std::int64_t{1}) != 1) {
      config.refuse(key, "groups of experts are not supported, expected 1");
    }
  }
  for (const char* key : {"num_nextn_predict_layers", "num_mtp_layers"}) {
    const std::int64_t further = config.value(key, std::int64_t{0});
    if (further > 0)
      config.note(
          fmt::format("{}: {} layers that predict further tokens are left out", key, further));
  }
  const std::int64_t dense = config.value("first_k_dense_replace", std::int64_t{1});
  if (dense < 0 || dense >= model.layers) {
    return config.refuse("first_k_dense_replace", "expected 0 to all layers but one");
  }
  if (dense == 0) return;
  LayerKind of_dense = model.kinds.front(), of_experts = of_dense;
  of_dense.name = "dense";
  of_dense.dense_feed_forward = dense_width;
  of_experts.name = "experts";
  model.kinds = {of_dense, of_experts};
  model.leading.assign(static_cast<std::size_t>(dense), 0);
  model.pattern = {1};
}

}  // namespace fpdt
