// How a config.json is read, and which values we refuse to guess.
#include "fpdt/io/hf_config.h"

#include <gmock/gmock.h>
#include <map>

#include <gtest/gtest.h>

#include "fpdt/io/model_file.h"

#include "hf_configs.h"
#include "hf_families.h"
#include "scratch.h"

namespace fpdt::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(HfConfig, ReadsLlama31) {
  const ModelSpec model = parsed(kLlama31);
  EXPECT_EQ(parameter_count(model), 8030261248);
  EXPECT_EQ(model.kinds.front().rotary, (RotarySpec{1, 500000, 8, 1, 4, 8192}));
  EXPECT_EQ(model.kv_heads, 8);
  EXPECT_FALSE(model.tied_embeddings);
}

TEST(HfConfig, AbsentKeysHaveTheDefaultsOfTheClass) {
  const ModelSpec llama = parsed(R"({"model_type": "llama"})");
  EXPECT_EQ(parameter_count(llama), 6738415616);  // Llama 7B
  EXPECT_EQ(llama.norm_epsilon, 1e-6);
  const ModelSpec gpt2 = parsed(R"({"model_type": "gpt2", "attn_pdrop": 0.0})");
  EXPECT_EQ(parameter_count(gpt2), 124439808);
  EXPECT_TRUE(gpt2.tied_embeddings);
  EXPECT_EQ(gpt2.activation, ActivationFamily::gelu_tanh);
  const ModelSpec qwen = parsed(R"({"model_type": "qwen2", "num_key_value_heads": null})");
  EXPECT_TRUE(qwen.qkv_bias);
  EXPECT_EQ(qwen.kv_heads, 32);
  EXPECT_EQ(parsed(R"({"model_type": "mistral", "sliding_window": null})").kv_heads, 8);
}

// A type such as "llama" does not tell one model from another.
TEST(HfConfig, TheFolderNamesAModelThatHasNoName) {
  std::vector<std::string> notes;
  const auto name = [&](std::string_view text, std::string_view file) {
    return parse_hf_config(text, file, notes).name;
  };
  constexpr std::string_view kNameless = R"({"model_type": "llama"})";
  EXPECT_EQ(name(kNameless, "/models/Llama-2-7b/config.json"), "Llama-2-7b");
  EXPECT_EQ(name(kNameless, "models/x/../mine/./config.json"), "mine");
  EXPECT_EQ(name(kNameless, "models/small.json"), "small");
  EXPECT_EQ(name(kNameless, "/config.json"), "llama");
  EXPECT_EQ(name(R"({"model_type": "llama", "_name_or_path": "meta-llama/Llama-2-7b-hf"})",
                 "models/x/config.json"),
            "meta-llama/Llama-2-7b-hf");
}

// A config of two keys is not planned in silence.
TEST(HfConfig, NotesEverySizeThatItLeavesOut) {
  const auto notes = [](std::string_view text) {
    std::vector<std::string> all;
    static_cast<void>(parse_hf_config(text, "config.json", all));
    return all;
  };
  EXPECT_THAT(notes(R"({"model_type": "llama", "hidden_size": 2048})"),
              ElementsAre("the config leaves sizes out; planned with the defaults of llama: "
                          "num_hidden_layers 32, num_attention_heads 32, num_key_value_heads 32, "
                          "intermediate_size 11008, vocab_size 32000, tie_word_embeddings false"));
  EXPECT_THAT(notes(R"({"model_type": "qwen3"})"),
              ElementsAre(HasSubstr("num_key_value_heads 32, head_dim 128")));
  EXPECT_THAT(
      notes(R"({"model_type": "gpt2", "attn_pdrop": 0, "resid_pdrop": 0, "embd_pdrop": 0})"),
      ElementsAre(HasSubstr("gpt2: n_embd 768, n_layer 12, n_head 12, vocab_size 50257, "
                            "n_positions 1024")));
  EXPECT_THAT(notes(R"({"model_type": "gpt_neox"})"), ElementsAre(HasSubstr("hidden_size 6144")));
  // Complete ones, as transformers writes them, are read in silence.
  for (const char* name : test::kHfFamilies) {
    std::vector<std::string> all;
    static_cast<void>(load_model(source_path(std::string("tests/fixtures/hf/") + name), &all));
    EXPECT_THAT(all, IsEmpty()) << name;
  }
}

// Configs of published models, reduced to the values that differ from their class.
TEST(HfConfig, ReadsPublishedModels) {
  const ModelSpec qwen3 = parsed(R"({"model_type": "qwen3", "head_dim": 128, "hidden_size": 5120,
      "intermediate_size": 25600, "num_attention_heads": 64, "num_hidden_layers": 64,
      "num_key_value_heads": 8, "rope_scaling": null, "rope_theta": 1000000,
      "sliding_window": null, "use_sliding_window": false})");
  EXPECT_EQ(parameter_count(qwen3), 32762123264);
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_EQ(qwen3.q_width(), 8192) << "not the hidden size";
  const ModelSpec neox = parsed(R"({"model_type": "gpt_neox", "hidden_act": "gelu_fast",
      "attention_probs_dropout_prob": 0, "hidden_dropout_prob": 0, "rotary_pct": 0.25})");
  EXPECT_EQ(parameter_count(neox), 20554567680);
  EXPECT_TRUE(neox.parallel_residual);
  EXPECT_EQ(neox.rotary_dim(neox.kinds.front()), 24);
  EXPECT_EQ(neox.activation, ActivationFamily::gelu_tanh);
}

TEST(HfConfig, ReadsWindows) {
  const ModelSpec mistral = parsed(R"({"model_type": "mistral", "vocab_size": 32000})");
  EXPECT_EQ(mistral.kinds.front().window, 4096) << "that of version 0.1, the default of the class";
  EXPECT_EQ(parsed(hf_config_json(mistral)).kinds, mistral.kinds);
  const ModelSpec late = parsed(R"({"model_type": "qwen2", "num_hidden_layers": 4,
      "use_sliding_window": true, "sliding_window": 100, "max_window_layers": 3})");
  EXPECT_EQ(pattern_in_words(late), "1 layer of window (100), 3 of full");
  EXPECT_EQ(late.pattern, (std::vector<std::int64_t>{1, 1, 1, 0}));
  const ModelSpec listed = parsed(R"({"model_type": "qwen3", "num_hidden_layers": 5,
      "use_sliding_window": true, "sliding_window": 8, "layer_types": ["sliding_attention",
      "full_attention", "sliding_attention", "full_attention", "sliding_attention"]})");
  EXPECT_EQ(listed.pattern, (std::vector<std::int64_t>{0, 1}));
  for (const ModelSpec& model : {late, listed}) {
    const ModelSpec again = parsed(hf_config_json(model));
    EXPECT_EQ(again.kinds, model.kinds);
    EXPECT_EQ(again.pattern, model.pattern);
  }
  ModelSpec bare = listed;
  bare.qk_norm = false;
  EXPECT_THAT(input_error([&] { static_cast<void>(hf_config_json(bare)); }),
              HasSubstr("no Hugging Face family"));
}

TEST(HfConfig, ReadsPhi3) {
  const ModelSpec mini = parsed(R"({"model_type": "phi3", "sliding_window": 2047})");
  EXPECT_EQ(parameter_count(mini), 3821079552);
  EXPECT_EQ(pattern_in_words(mini), "window of 2047");
  const ModelSpec phi4 = parsed(R"({"model_type": "phi3", "hidden_size": 5120,
      "intermediate_size": 17920, "num_attention_heads": 40, "num_hidden_layers": 40,
      "num_key_value_heads": 10, "rope_theta": 250000, "vocab_size": 100352})");
  EXPECT_EQ(parameter_count(phi4), 14659507200);
  EXPECT_EQ(pattern_in_words(phi4), "");
  EXPECT_EQ(hf_family(phi4), HfFamily::phi3);
  EXPECT_THAT(config_error(R"({"model_type": "phi3", "rope_scaling": {"type": "yarn", "factor": 4,
      "original_max_position_embeddings": 4096}})"),
              HasSubstr("takes the yarn of phi3 for longrope"));
  ModelSpec stretched = phi4;
  stretched.kinds.front().rotary.factor = 4;
  stretched.kinds.front().rotary.scaling = RotaryScaling::yarn;
  EXPECT_THAT(input_error([&] { static_cast<void>(hf_config_json(stretched)); }),
              HasSubstr("no Hugging Face family"));
}

TEST(HfConfig, ReadsGemma3) {
  // The model for images and text, whose values stand in a map.
  std::vector<std::string> notes;
  const ModelSpec model = parse_hf_config(R"({"model_type": "gemma3", "text_config": {
      "head_dim": 128, "hidden_size": 5376, "intermediate_size": 21504,
      "model_type": "gemma3_text", "num_attention_heads": 32, "num_hidden_layers": 62,
      "num_key_value_heads": 16, "query_pre_attn_scalar": 168,
      "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024},
      "vision_config": {}})",
                                          "gemma.json", notes);
  const ModelSpec ours = load_model(source_path("models/gemma3-27b.yaml"));
  EXPECT_EQ(model.kinds, ours.kinds);
  EXPECT_EQ(model.pattern, ours.pattern);
  EXPECT_EQ(model.attention_scale, ours.attention_scale);
  EXPECT_EQ(model.embedding_scale, ours.embedding_scale);
  EXPECT_EQ(parameter_count(model), parameter_count(ours));
  EXPECT_EQ(pattern_in_words(model), "52 layers of window (1024), 10 of full");
  EXPECT_THAT(notes, testing::Contains(HasSubstr("without images")));
  const ModelSpec again = parsed(hf_config_json(ours));
  EXPECT_EQ(again.kinds, ours.kinds);
  EXPECT_EQ(again.attention_scale, ours.attention_scale);
  // What the keys of a config cannot say is refused, and not rounded.
  ModelSpec odd = ours;
  odd.attention_scale = 0.4;
  EXPECT_THAT(input_error([&] { static_cast<void>(hf_config_json(odd)); }),
              HasSubstr("no Hugging Face family"));
  odd = ours;
  odd.kinds.back().rotary.magnitude = 1.25;
  EXPECT_THAT(input_error([&] { static_cast<void>(hf_config_json(odd)); }),
              HasSubstr("rotary.magnitude 1.25 beside scaling linear"));
  EXPECT_THAT(config_error(R"({"model_type": "gemma3_text", "final_logit_softcapping": 30.0})"),
              HasSubstr("soft capping of logits"));
  EXPECT_THAT(config_error(R"({"model_type": "gemma3_text", "sliding_window": null})"),
              HasSubstr("sliding_window: expected a number of tokens"));
}

// The published OLMo 3 7B, and what else its configs may say.
TEST(HfConfig, ReadsOlmo) {
  const auto olmo3 = [](const std::string& keys) {
    return R"({"model_type": "olmo3", "vocab_size": 100278, "rms_norm_eps": 1e-06, )" + keys + "}";
  };
  const std::string scaling =
      R"("rope_scaling": {"attention_factor": 1.2079441541679836, "beta_fast": 32, "beta_slow": 1,
          "factor": 8.0, "original_max_position_embeddings": 8192, "rope_type": "yarn"})";
  ModelSpec read = parsed(olmo3(R"("rope_theta": 500000, )" + scaling));
  const ModelSpec ours = load_model(source_path("models/olmo3-7b.yaml"));
  read.name = ours.name, read.source = ours.source;
  EXPECT_EQ(read, ours);
  EXPECT_EQ(hf_family(read), HfFamily::olmo3);
  // transformers 4 and 5 take it for other layers.
  EXPECT_THAT(config_error(olmo3(R"("rope_theta": 10000, )" + scaling)), HasSubstr("rope_theta"));
  read.kinds[0].rotary.theta = read.kinds[1].rotary.theta = 10000;
  EXPECT_THAT(input_error([&] { static_cast<void>(hf_family(read)); }),
              HasSubstr("no Hugging Face family"));
  const ModelSpec second = parsed(R"({"model_type": "olmo2", "rope_theta": 10000})");
  EXPECT_FALSE(second.pre_norms);
  EXPECT_TRUE(second.joint_qk_norm);
  EXPECT_EQ(hf_family(second), HfFamily::olmo2);
  EXPECT_EQ(hf_family(load_model(source_path("models/olmoe-1b-7b.yaml"))), HfFamily::olmoe);
  EXPECT_THAT(config_error(R"({"model_type": "olmoe", "head_dim": 64})"), HasSubstr("head_dim"));
  const ModelSpec balanced = parsed(R"({"model_type": "olmoe", "output_router_logits": true})");
  EXPECT_EQ(balanced.balance_loss, 0.01);
}

TEST(HfConfig, ReadsGemma2) {
  const ModelSpec model = parsed(R"({"model_type": "gemma2", "head_dim": 128, "hidden_size": 4608,
      "intermediate_size": 36864, "num_attention_heads": 32, "num_hidden_layers": 46,
      "num_key_value_heads": 16, "query_pre_attn_scalar": 144, "hidden_act": "gelu_pytorch_tanh",
      "cache_implementation": "hybrid"})");
  const ModelSpec ours = load_model(source_path("models/gemma2-27b.yaml"));
  EXPECT_EQ(model.kinds, ours.kinds);
  EXPECT_EQ(model.pattern, ours.pattern);
  EXPECT_EQ(model.attention_scale, ours.attention_scale);
  EXPECT_EQ(model.attention_cap, 50);
  EXPECT_EQ(model.logits_cap, 30);
  EXPECT_EQ(parameter_count(model), parameter_count(ours));
  EXPECT_EQ(hf_family(ours), HfFamily::gemma2);
  ModelSpec uncapped = ours;
  uncapped.attention_cap = 0;
  const ModelSpec again = parsed(hf_config_json(uncapped));
  EXPECT_EQ(again.attention_cap, 0) << "null in the config, not the default of the class";
  EXPECT_EQ(again.logits_cap, 30);
  EXPECT_EQ(again.kinds, ours.kinds);
  ModelSpec both = ours;
  both.qk_norm = true;
  EXPECT_THAT(input_error([&] { static_cast<void>(hf_family(both)); }),
              HasSubstr("no Hugging Face family"));
}

TEST(HfConfig, NotesWhatItIgnores) {
  std::vector<std::string> notes;
  static_cast<void>(parse_hf_config(
      R"({"model_type": "gpt2", "attn_pdrop": 0, "resid_pdrop": 0, "mystery": 3, "n_embd": 768,
          "n_layer": 12, "n_head": 12, "vocab_size": 50257, "n_positions": 1024})",
      "c", notes));
  EXPECT_THAT(notes, ElementsAre(HasSubstr("embd_pdrop: 0.1 is taken as 0"), HasSubstr("mystery")));
  notes.clear();
  static_cast<void>(load_model(source_path("tests/fixtures/hf/llama"), &notes));
  EXPECT_THAT(notes, IsEmpty());
}

TEST(HfConfig, RefusesWhatWouldTrainAnotherModel) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {R"("rope_scaling": {"type": "dynamic", "factor": 4})",
       "rope type \"dynamic\" is not supported"},
      {R"("rope_scaling": {"type": "yarn", "factor": 4})", "original_max_position_embeddings"},
      {R"("rope_scaling": {"type": "linear", "factor": 4, "low_freq_factor": 1})", "unknown key"},
      {R"("partial_rotary_factor": 0.5)", "llama turns whole heads"},
      {R"("rope_scaling": {"rope_type": "llama3"})", "rope_scaling.factor: this key is required"},
      {R"("sliding_window": 4096)", "llama has no windows"},
      {R"("layer_types": ["full_attention", "sliding_attention"])", "expected 32 layers, found 2"},
      {R"("quantization_config": {"bits": 4})", "quantization_config: only fp8 is supported"},
      {R"("quantization_config": {"quant_method": "fp8", "weight_block_size": [64, 128]})",
       "expected a weight_block_size of [128, 128]"},
      {R"("final_logit_softcapping": 30.0)", "soft capping of logits"},
      {R"("use_alibi": true)", "ALiBi"},
      {R"("dual_chunk_attention_config": {"chunk_size": 262144})", "(dual chunk attention)"},
      {R"("attention_gate": "sigmoid")", "attention_gate: unknown key, which by its name"},
      {R"("logits_scaling": 8)", "scaled logits"},
      {R"("auto_map": {"AutoModelForCausalLM": "modeling.Model"})", "brings its own code"},
      {R"("auto_map": {"AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM"})", "own code"},
      {R"("lm_head_bias": true)", "lm_head_bias: not supported (a bias of the head)"},
      {R"("full_attn_mod": 2)", "full_attn_mod: not supported"},
      {R"("num_local_experts": 8)", "num_local_experts"},
      {R"("attention_dropout": 0.1)", "dropout 0.1 is not supported"},
      {R"("attention_bias": true)", "attention_bias"},
      {R"("mlp_bias": true)", "mlp_bias: only false is supported"},
      {R"("hidden_act": "gelu")", "expected \"silu\", found \"gelu\""},
      {R"("hidden_size": "4096")", "hidden_size: expected an integer"},
      {R"("hidden_size": 4096, "hidden_size": 8)", "duplicate key"},
      {R"("num_attention_heads": 0)", "heads"},
      {R"("num_hidden_layers": 1e9)", "num_hidden_layers: expected an integer"},
      {R"("num_hidden_layers": 1000000000)", "layers"},
  };
  for (const auto& [entry, message] : cases) {
    EXPECT_THAT(config_error(R"({"model_type": "llama", )" + entry + "}"), HasSubstr(message))
        << entry;
  }
  EXPECT_THAT(config_error(R"({"model_type": "llama", "sliding_window": 4096})"),
              HasSubstr("sliding_window: llama has no windows"));
  EXPECT_THAT(config_error(R"({"model_type": "mistral", "sliding_window": -1})"),
              HasSubstr("sliding_window: expected a number of tokens"));
  const std::string two = R"({"model_type": "qwen3", "num_hidden_layers": 2, "layer_types": )";
  EXPECT_THAT(config_error(two + R"(["chunked_attention", "full_attention"]})"),
              HasSubstr("layer_types: \"chunked_attention\" is not supported"));
  EXPECT_THAT(config_error(two + R"(["full_attention"]})"),
              HasSubstr("layer_types: expected 2 layers, found 1"));
  EXPECT_THAT(config_error(two + R"(["sliding_attention", "full_attention"]})"),
              HasSubstr("layer_types: lists layers with windows, but there is no window"));
  EXPECT_THAT(config_error(R"({"model_type": "qwen3", "attention_bias": true})"),
              HasSubstr("attention_bias: only false is supported"));
  EXPECT_THAT(config_error(R"({"model_type": "gpt_neox", "hidden_dropout": 0.1})"),
              HasSubstr("dropout 0.1 is not supported"));
  EXPECT_THAT(
      config_error(R"({"model_type": "gpt_neox", "hidden_size": 48, "num_attention_heads": 4})"),
      HasSubstr("0.25 of head_dim 12 rotates 3 dimensions, expected an even number"));
  EXPECT_THAT(config_error(R"({"model_type": "qwen2_moe", "num_experts": 8})"),
              HasSubstr("\"qwen2_moe\": shared experts are not supported"));
  EXPECT_THAT(config_error(R"({"model_type": "llama", "num_local_experts": 8})"),
              HasSubstr("num_local_experts: not supported (experts)"));
  EXPECT_THAT(config_error(R"({"model_type": "gemma"})"), HasSubstr("only Gemma 2 and 3"));
  EXPECT_THAT(config_error(R"({"model_type": "lama"})"), HasSubstr("did you mean \"llama\"?"));
  EXPECT_THAT(config_error(R"({})"), HasSubstr("model_type: this key is required"));
}

TEST(HfConfig, SurvivesHostileText) {
  for (const std::string& text :
       {std::string(), std::string(1000000, '['), std::string("{\"a\":1e999}"),
        std::string("\xEF\xBB\xBF{}"), std::string("{\"a\":\"\xff\"}"), std::string("[1]"),
        std::string("{} {}")}) {
    EXPECT_NE(config_error(text), "");
  }
  for (std::size_t length = 0; length < kLlama31.size(); ++length) {
    EXPECT_NE(config_error(kLlama31.substr(0, length)), "") << length;
  }
}

TEST(HfConfig, PrintsWhatItReads) {
  for (const char* name : test::kHfFamilies) {
    const ModelSpec model = load_model(source_path(std::string("tests/fixtures/hf/") + name));
    ModelSpec again = parsed(hf_config_json(model));
    again.source = model.source;
    again.name = model.name;
    EXPECT_EQ(again, model) << name;
  }
  ModelSpec qwen = parsed(R"({"model_type": "qwen2", "tie_word_embeddings": true})");
  EXPECT_EQ(parsed(hf_config_json(qwen)), qwen);
}

TEST(HfConfig, KnowsWhichModelsHaveNoFamily) {
  ModelSpec model = load_model(source_path("models/gpt-tiny.yaml"));
  EXPECT_EQ(hf_family(model), HfFamily::gpt2);
  model.kinds.front().rotary.fraction = 0.25;
  EXPECT_THAT(input_error([&] { static_cast<void>(hf_config_json(model)); }),
              HasSubstr("no Hugging Face family"));
  EXPECT_EQ(hf_family(load_model(source_path("models/gpt-6.7b.yaml"))), HfFamily::gpt_neox);
  EXPECT_EQ(hf_family(load_model(source_path("models/llama3-8b.yaml"))), HfFamily::llama);
}

}  // namespace
}  // namespace fpdt::test
