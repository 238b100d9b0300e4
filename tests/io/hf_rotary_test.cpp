// How the rotary embedding of a config.json is read and printed.
#include <gmock/gmock.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "fpdt/io/model_file.h"

#include "hf_configs.h"

namespace fpdt::test {
namespace {

using ::testing::HasSubstr;

// As in the model card of Qwen2.5 for longer texts. The attention factor is 0.1 ln(4) + 1.
TEST(HfRotary, ReadsYarn) {
  const std::string start = R"({"model_type": "qwen2", "max_position_embeddings": 32768,
      "rope_scaling": {"type": "yarn", "factor": 4.0)";
  const ModelSpec model = parsed(start + "}}");
  EXPECT_EQ(model.kinds.front().rotary.scaling, RotaryScaling::yarn);
  EXPECT_EQ(model.kinds.front().rotary.original_positions, 32768);
  EXPECT_EQ(model.kinds.front().rotary.low_frequency_factor, 1);
  EXPECT_EQ(model.kinds.front().rotary.high_frequency_factor, 32);
  EXPECT_NEAR(model.kinds.front().rotary.magnitude, 1.1386294361119891, 1e-15);
  const std::string inside = R"(, "original_max_position_embeddings": 4096)";
  EXPECT_EQ(parsed(start + inside + "}}").kinds.front().rotary.original_positions, 4096);
  EXPECT_EQ(parsed(start + inside + R"(}, "original_max_position_embeddings": 99})")
                .kinds.front()
                .rotary.original_positions,
            99);
  EXPECT_EQ(parsed(start + R"(, "attention_factor": 1.5}})").kinds.front().rotary.magnitude, 1.5);
  EXPECT_EQ(
      parsed(start + R"(, "mscale": 0.7, "mscale_all_dim": 0.7}})").kinds.front().rotary.magnitude,
      1);
}

// As the config of Phi 3 mini with 128K positions has it, which names it by its first name.
TEST(HfRotary, ReadsLongrope) {
  const auto config = [](const char* scaling, const char* positions) {
    return fmt::format(R"({{"model_type": "phi3", "hidden_size": 16, "intermediate_size": 24,
        "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 64, {}
        "rope_scaling": {{"long_factor": [1.5, 4], "short_factor": [1, 1.25], {}}}}})",
                       positions, scaling);
  };
  const char* beside = R"("max_position_embeddings": 131072,
      "original_max_position_embeddings": 4096,)";
  ModelSpec model = parsed(config(R"("type": "su")", beside));
  RotarySpec& rotary = model.kinds.front().rotary;
  EXPECT_EQ(rotary.scaling, RotaryScaling::longrope);
  EXPECT_EQ(rotary.pair_factors(4096), (std::vector<double>{1, 1.25}));
  EXPECT_EQ(rotary.pair_factors(4097), (std::vector<double>{1.5, 4}));
  EXPECT_NEAR(rotary.magnitude, 1.190238, 1e-6);
  EXPECT_EQ(parsed(hf_config_json(model)).kinds, model.kinds);
  EXPECT_THAT(hf_config_json(model), HasSubstr("\"max_position_embeddings\": 131072"));
  // A magnitude of no number of positions is written beside the factors.
  rotary.magnitude = 0.5;
  EXPECT_EQ(parsed(hf_config_json(model)).kinds, model.kinds);
  rotary.magnitude = 1.1234567;
  EXPECT_EQ(parsed(hf_config_json(model)).kinds, model.kinds);
  const auto magnitude_of = [&](const char* scaling) {
    return parsed(config(scaling, beside)).kinds.front().rotary.magnitude;
  };
  EXPECT_EQ(magnitude_of(R"("type": "longrope", "factor": 1)"), 1);
  EXPECT_EQ(magnitude_of(R"("type": "longrope", "attention_factor": 1.25)"), 1.25);
  EXPECT_THAT(config_error(config(R"("type": "longrope")", "")),
              HasSubstr("rope_scaling.original_max_position_embeddings: this key is required"));
  EXPECT_THAT(config_error(R"({"model_type": "phi3", "rope_scaling": {"type": "longrope",
      "short_factor": 1, "long_factor": [1, "2"], "original_max_position_embeddings": 4096}})"),
              AllOf(HasSubstr("rope_scaling.short_factor: expected a list of numbers"),
                    HasSubstr("rope_scaling.long_factor: expected a list of numbers")));
}

// With the keys of the published config, which names code of its own.
TEST(HfRotary, ReadsPhi4Mini) {
  const ModelSpec ours = load_model(source_path("models/phi4-mini.yaml"));
  const RotarySpec& rotary = ours.kinds.front().rotary;
  std::vector<std::string> notes;
  const ModelSpec read = parse_hf_config(
      fmt::format(R"({{"architectures": ["Phi3ForCausalLM"], "attention_bias": false,
          "attention_dropout": 0.0, "auto_map": {{"AutoConfig": "configuration_phi3.Phi3Config",
          "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM"}}, "embd_pdrop": 0.0,
          "full_attn_mod": 1, "hidden_act": "silu", "hidden_size": 3072, "initializer_range": 0.02,
          "intermediate_size": 8192, "interpolate_factor": 1, "lm_head_bias": false,
          "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "phi3",
          "num_attention_heads": 24, "num_hidden_layers": 32, "num_key_value_heads": 8,
          "original_max_position_embeddings": 4096, "partial_rotary_factor": 0.75,
          "resid_pdrop": 0.0, "rms_norm_eps": 1e-05, "rope_scaling": {{"long_factor": [{}],
          "short_factor": [{}], "type": "longrope"}}, "rope_theta": 10000.0,
          "sliding_window": 262144, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
          "use_cache": true, "vocab_size": 200064}})",
                  fmt::join(rotary.long_factors, ", "), fmt::join(rotary.short_factors, ", ")),
      "config.json", notes);
  EXPECT_THAT(notes, testing::ElementsAre(HasSubstr("is taken for that of transformers")));
  ModelSpec expected = ours;
  expected.name = read.name;
  expected.source = read.source;
  EXPECT_EQ(read, expected);
  EXPECT_EQ(parameter_count(read), 3836021760);
}

TEST(HfRotary, BothRopeGenerationsMeanTheSame) {
  const std::string start = R"({"model_type": "llama", )";
  const ModelSpec older =
      parsed(start + R"("rope_theta": 5e5, "rope_scaling": {"type": "llama3", "factor": 8,
      "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8192}})");
  const std::string newer_rope =
      R"("rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3", "factor": 8,
      "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8192})";
  EXPECT_EQ(older, parsed(start + newer_rope + "}"));
  EXPECT_EQ(older, parsed(start + newer_rope + R"(, "rope_theta": 500000})"));
  EXPECT_THAT(config_error(start + newer_rope + R"(, "rope_theta": 10000})"),
              HasSubstr("disagrees"));
  EXPECT_THAT(config_error(start + newer_rope + R"(, "rope_scaling": {"rope_type": "default"}})"),
              HasSubstr("disagrees"));
}

TEST(HfRotary, PrintsEveryMagnitudeOrRefusesIt) {
  ModelSpec model = parsed(kLlama31);
  for (const RotaryScaling scaling :
       {RotaryScaling::llama3, RotaryScaling::linear, RotaryScaling::yarn}) {
    for (const double factor : {1.0, 4.0}) {
      model.kinds.front().rotary.scaling = scaling;
      model.kinds.front().rotary.factor = factor;
      model.kinds.front().rotary.magnitude = 1.25;
      if (factor == 1 || scaling == RotaryScaling::yarn) {
        const RotarySpec read = parsed(hf_config_json(model)).kinds.front().rotary;
        EXPECT_EQ(read.magnitude, 1.25);
        EXPECT_EQ(read.factor, factor);
      } else {
        EXPECT_THAT(input_error([&] { static_cast<void>(hf_config_json(model)); }),
                    HasSubstr("rotary.magnitude 1.25 beside scaling"));
      }
      model.kinds.front().rotary.magnitude = 1;
      EXPECT_EQ(parsed(hf_config_json(model)).kinds.front().rotary.magnitude, 1);
    }
  }
}

}  // namespace
}  // namespace fpdt::test
