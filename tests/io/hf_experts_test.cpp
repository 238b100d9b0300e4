// How experts of a config.json are read.
#include <gmock/gmock.h>
#include <map>

#include <gtest/gtest.h>

#include "fpdt/io/hf_config.h"
#include "fpdt/io/model_file.h"

#include "hf_configs.h"

namespace fpdt::test {
namespace {

using ::testing::HasSubstr;

// The keys are those of the published config of GLM-4.5-Air.
TEST(HfExperts, ReadsDenseLayersBeforeExperts) {
  const std::string published = R"({"model_type": "glm4_moe", "attention_bias": true,
      "attention_dropout": 0.0, "first_k_dense_replace": 1, "head_dim": 128, "hidden_act": "silu",
      "hidden_size": 4096, "intermediate_size": 10944, "max_position_embeddings": 131072,
      "moe_intermediate_size": 1408, "n_group": 1, "n_routed_experts": 128, "n_shared_experts": 1,
      "norm_topk_prob": true, "num_attention_heads": 96, "num_experts_per_tok": 8,
      "num_hidden_layers": 46, "num_key_value_heads": 8, "num_nextn_predict_layers": 1,
      "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-05, "rope_scaling": null,
      "rope_theta": 1000000, "routed_scaling_factor": 1.0, "tie_word_embeddings": false,
      "topk_group": 1, "use_cache": true, "use_qk_norm": false, "vocab_size": 151552)";
  const ModelSpec ours = load_model(source_path("models/glm-4.5-air.yaml"));
  for (const ModelSpec& read : {parsed(published + "}"), parsed(hf_config_json(ours))}) {
    EXPECT_EQ(read.kinds, ours.kinds);
    EXPECT_EQ(read.leading, ours.leading);
    EXPECT_EQ(read.pattern, ours.pattern);
    EXPECT_EQ(read.shared_feed_forward, 1408);
    EXPECT_EQ(parameter_count(read), parameter_count(ours));
    EXPECT_EQ(hf_family(read), HfFamily::glm4_moe);
  }
  std::vector<std::string> notes;
  parse_hf_config(published + "}", "config.json", notes);
  EXPECT_THAT(notes, ::testing::Contains(HasSubstr("num_nextn_predict_layers: 1 layers")));
  const ModelSpec scaled = parsed(R"({"model_type": "glm4_moe", "first_k_dense_replace": 3,
      "head_dim": 128, "use_qk_norm": true, "routed_scaling_factor": 2.5, "n_shared_experts": 2})");
  EXPECT_EQ(scaled.expert_scale, 2.5);
  EXPECT_EQ(scaled.shared_feed_forward, 2 * scaled.feed_forward);
  EXPECT_TRUE(scaled.qk_norm);
  EXPECT_EQ(layers_of_kinds(scaled), (std::vector<std::int64_t>{3, 43}));
  EXPECT_EQ(layers_of_kinds(parsed(hf_config_json(scaled))), layers_of_kinds(scaled));
  const ModelSpec alone =
      parsed(R"({"model_type": "glm4_moe", "head_dim": 128, "first_k_dense_replace": 0})");
  EXPECT_EQ(alone.kinds.size(), 1U);
  EXPECT_EQ(parsed(hf_config_json(alone)).kinds, alone.kinds);
  for (const auto& [key, value] : std::map<std::string, std::string>{
           {"n_group", "2"}, {"first_k_dense_replace", "46"}, {"n_shared_experts", "0"}}) {
    EXPECT_THAT(config_error(R"({"model_type": "glm4_moe", ")" + key + "\": " + value + "}"),
                HasSubstr(key));
  }
  // No other family has what is shared, or scales weights of experts.
  ModelSpec odd = load_model(source_path("models/minimax-m2.yaml"));
  odd.expert_scale = 2;
  EXPECT_THAT(input_error([&] { static_cast<void>(hf_family(odd)); }),
              HasSubstr("no Hugging Face family"));
}

// The keys are those of the published config.
TEST(HfExperts, ReadsRoutersOfSigmoids) {
  const std::string published = R"({"model_type": "minimax_m2", "attn_type_list": [1, 1],
      "head_dim": 128, "hidden_act": "silu", "hidden_size": 3072, "intermediate_size": 1536,
      "num_attention_heads": 48, "num_experts_per_tok": 8, "num_hidden_layers": 62,
      "num_key_value_heads": 8, "num_local_experts": 256, "num_mtp_modules": 3,
      "qk_norm_type": "per_layer", "rms_norm_eps": 1e-06, "rope_theta": 5000000,
      "rotary_dim": 64, "scoring_func": "sigmoid", "shared_intermediate_size": 0,
      "tie_word_embeddings": false, "use_mtp": true, "use_qk_norm": true,
      "use_routing_bias": true, "vocab_size": 200064,
      "quantization_config": {"activation_scheme": "dynamic", "fmt": "float8_e4m3fn",
                              "quant_method": "fp8", "weight_block_size": [128, 128],
                              "modules_to_not_convert": ["gate", "lm_head"]})";
  const ModelSpec ours = load_model(source_path("models/minimax-m2.yaml"));
  for (const ModelSpec& read : {parsed(published + "}"), parsed(hf_config_json(ours))}) {
    EXPECT_TRUE(read.sigmoid_router);
    EXPECT_EQ(read.kinds, ours.kinds);
    EXPECT_EQ(parameter_count(read), parameter_count(ours));
    EXPECT_EQ(hf_family(read), HfFamily::minimax_m2);
  }
  const std::map<std::string, std::string> refused{
      {"scoring_func", R"("softmax")"}, {"use_routing_bias", "false"},
      {"use_qk_norm", "false"},         {"qk_norm_type", R"("per_head")"},
      {"attn_type_list", "[1, 0]"},     {"shared_intermediate_size", "8"},
      {"output_router_logits", "true"}};
  for (const auto& [key, value] : refused) {
    EXPECT_THAT(config_error(R"({"model_type": "minimax_m2", ")" + key + "\": " + value + "}"),
                HasSubstr(key));
  }
  ModelSpec odd = ours;
  odd.joint_qk_norm = false;
  EXPECT_THAT(input_error([&] { static_cast<void>(hf_family(odd)); }),
              HasSubstr("no Hugging Face family"));
}

TEST(HfExperts, ReadsExperts) {
  const ModelSpec mixtral = parsed(R"({"model_type": "mixtral"})");
  const ModelSpec ours = load_model(source_path("models/mixtral-8x7b.yaml"));
  EXPECT_EQ(parameter_count(mixtral), parameter_count(ours));
  EXPECT_EQ(active_parameter_count(mixtral), 12879925248);
  EXPECT_EQ(mixtral.kinds, ours.kinds);
  const ModelSpec qwen = parsed(R"({"model_type": "qwen3_moe", "head_dim": 128,
      "hidden_size": 2048, "num_hidden_layers": 48, "num_key_value_heads": 4,
      "num_attention_heads": 32, "moe_intermediate_size": 768, "num_experts": 128,
      "num_experts_per_tok": 8, "norm_topk_prob": true, "rope_theta": 1000000.0,
      "decoder_sparse_step": 1, "mlp_only_layers": [], "intermediate_size": 6144})");
  const ModelSpec thirty = load_model(source_path("models/qwen3-30b-a3b.yaml"));
  EXPECT_EQ(parameter_count(qwen), parameter_count(thirty));
  EXPECT_EQ(pattern_in_words(qwen), "a token takes 8 of 128 experts");
  for (const ModelSpec& model : {ours, thirty}) {
    const ModelSpec again = parsed(hf_config_json(model));
    EXPECT_EQ(again.experts, model.experts);
    EXPECT_EQ(again.active_experts, model.active_experts);
    EXPECT_EQ(again.normalised_experts, model.normalised_experts);
    EXPECT_EQ(again.kinds, model.kinds);
  }
  EXPECT_FALSE(parsed(R"({"model_type": "qwen3_moe"})").normalised_experts);
  ModelSpec odd = ours;
  odd.normalised_experts = false;
  EXPECT_THAT(input_error([&] { static_cast<void>(hf_family(odd)); }),
              HasSubstr("no Hugging Face family"));
  const auto refused = [](const std::string& key) {
    return config_error(R"({"model_type": "qwen3_moe", )" + key + "}");
  };
  EXPECT_THAT(refused(R"("decoder_sparse_step": 2)"), HasSubstr("layers without experts"));
  EXPECT_THAT(refused(R"("mlp_only_layers": [0])"), HasSubstr("layers without experts"));
  // transformers balances experts only where it is asked for the logits of routers.
  EXPECT_EQ(parsed(R"({"model_type": "mixtral", "router_aux_loss_coef": 0.02})").balance_loss, 0);
  for (const char* type : {"mixtral", "qwen3_moe"}) {
    const std::string begin = std::string(R"({"model_type": ")") + type + R"(", )";
    EXPECT_EQ(parsed(begin + R"("output_router_logits": true})").balance_loss, 0.001);
    const ModelSpec balanced =
        parsed(begin + R"("output_router_logits": true, "router_aux_loss_coef": 0.02})");
    EXPECT_EQ(balanced.balance_loss, 0.02);
    EXPECT_EQ(parsed(hf_config_json(balanced)).balance_loss, 0.02);
  }
  EXPECT_THAT(refused(R"("output_router_logits": true, "router_aux_loss_coef": -1)"),
              HasSubstr("balance_loss: expected 0 to 1e3, found -1"));
  EXPECT_THAT(refused(R"("num_experts_per_tok": 200)"), HasSubstr("expected 1 to 64, found 200"));
  EXPECT_THAT(refused(R"("mlp_only_layers": 0)"), HasSubstr("layers without experts"));
  EXPECT_THAT(refused(R"("num_experts": 16, "num_local_experts": 8)"), HasSubstr("disagrees"));
  EXPECT_EQ(
      parsed(R"({"model_type": "mixtral", "num_experts": 4, "num_local_experts": 4})").experts, 4);
  const ModelSpec windowed = parsed(R"({"model_type": "mixtral", "sliding_window": 40})");
  EXPECT_EQ(parsed(hf_config_json(windowed)).kinds, windowed.kinds);
  EXPECT_THAT(config_error(R"({"model_type": "mixtral", "router_jitter_noise": 0.1})"),
              HasSubstr("router_jitter_noise: expected 0"));
}

// The defaults of its class are those of the larger model; the smaller one as it is published.
TEST(HfExperts, ReadsGptOss) {
  const ModelSpec large = load_model(source_path("models/gpt-oss-120b.yaml"));
  const ModelSpec small = load_model(source_path("models/gpt-oss-20b.yaml"));
  const auto same = [](ModelSpec read, const ModelSpec& ours) {
    read.name = ours.name;
    read.source = ours.source;
    EXPECT_EQ(read, ours);
  };
  same(parsed(R"({"model_type": "gpt_oss"})"), large);
  same(parsed(R"({"model_type": "gpt_oss", "num_hidden_layers": 24, "num_local_experts": 32,
      "experts_per_token": 4, "num_experts_per_tok": 4, "initial_context_length": 4096,
      "swiglu_limit": 7.0, "router_aux_loss_coef": 0.9, "sliding_window": 128,
      "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
                       "original_max_position_embeddings": 4096, "rope_type": "yarn",
                       "truncate": false},
      "quantization_config": {"quant_method": "mxfp4"}})"),
       small);
  EXPECT_EQ(active_parameter_count(small) - small.vocabulary * small.hidden, 3608307264);
  EXPECT_EQ(active_parameter_count(large) - large.vocabulary * large.hidden, 5132849472);
  for (const ModelSpec& model : {small, large}) same(parsed(hf_config_json(model)), model);
  ModelSpec plain = small;
  for (LayerKind& kind : plain.kinds) kind.rotary = {.fraction = 1, .theta = 5000};
  same(parsed(hf_config_json(plain)), plain);
  plain.bias = false;
  EXPECT_THAT(input_error([&] { static_cast<void>(hf_family(plain)); }),
              HasSubstr("no Hugging Face family"));
  const std::vector<std::pair<std::string, std::string>> refused{
      {R"("swiglu_limit": 6)", "swiglu_limit: only 7"},
      {R"("swiglu_alpha": 1)", "swiglu_alpha: only 1.702"},
      {R"("attention_bias": false)", "attention_bias: only true"},
      {R"("sliding_window": null)", "sliding_window: expected a number"},
      {R"("experts_per_token": 8)", "disagrees with num_experts_per_tok"},
      {R"("hidden_act": "gelu")", "hidden_act: expected"},
      {R"("partial_rotary_factor": 0.5)", "gpt_oss turns whole heads"},
      {R"("quantization_config": {"quant_method": "awq"})", "only mxfp4"}};
  for (const auto& [entry, why] : refused) {
    EXPECT_THAT(config_error(R"({"model_type": "gpt_oss", )" + entry + "}"), HasSubstr(why));
  }
}

}  // namespace
}  // namespace fpdt::test
