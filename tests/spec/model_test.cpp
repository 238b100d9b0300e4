// Tensors and exact parameter counts.
#include "fpdt/spec/model.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

#include "problems.h"

namespace fpdt {
namespace {

using test::llama3;
using testing::HasSubstr;

// The counts in model cards and checkpoints.
TEST(Model, CountsParametersExactly) {
  EXPECT_EQ(parameter_count(llama3(32, 4096, 32, 14336)), 8030261248);
  EXPECT_EQ(parameter_count(llama3(80, 8192, 64, 28672)), 70553706496);
  EXPECT_EQ(parameter_count(llama3(126, 16384, 128, 53248)), 405853388800);
}

// GPT-2 small: tied embeddings, learned positions, biases everywhere: 124,439,808.
TEST(Model, CountsGpt2) {
  ModelSpec model;
  model.family = Family::gpt;
  model.layers = 12;
  model.hidden = 768;
  model.heads = model.kv_heads = 12;
  model.head_dim = 64;
  model.feed_forward = 3072;
  model.vocabulary = 50257;
  model.norm = NormFamily::layer;
  model.activation = ActivationFamily::gelu_tanh;
  model.qkv_bias = model.bias = model.tied_embeddings = true;
  model.learned_positions = 1024;
  EXPECT_EQ(parameter_count(model), 124439808);
  EXPECT_TRUE(check(model).empty());
}

// Qwen3 has a weight of the head size for queries and one for keys, in every layer.
TEST(Model, NormedHeadsHaveTwoWeights) {
  ModelSpec model = llama3(2, 256, 8, 512);
  const std::int64_t plain = parameter_count(model);
  model.qk_norm = true;
  EXPECT_EQ(parameter_count(model), plain + 2 * 2 * 128);
  model.parallel_residual = true;
  EXPECT_EQ(parameter_count(model), plain + 2 * 2 * 128);
}

// OLMo has a weight of each column of queries and of keys, and norms of outputs alone.
TEST(Model, JointNormsHaveAWeightOfEachColumn) {
  ModelSpec model = llama3(2, 256, 8, 512);
  const std::int64_t plain = parameter_count(model);
  model.qk_norm = model.joint_qk_norm = true;
  EXPECT_EQ(parameter_count(model), plain + 2 * (model.q_width() + model.kv_width()));
  model.pre_norms = false;
  model.post_norms = true;
  EXPECT_EQ(parameter_count(model), plain + 2 * (model.q_width() + model.kv_width()));
  EXPECT_TRUE(check(model).empty());
  EXPECT_FALSE(divides_layers(model, 2));
  model.qk_norm = false;
  ASSERT_EQ(check(model).size(), 1U);
  EXPECT_NE(check(model).front().message.find("joint_qk_norm"), std::string::npos);
  model.qk_norm = true;
  model.post_norms = false;
  ASSERT_EQ(check(model).size(), 1U);
  EXPECT_NE(check(model).front().message.find("pre_norms"), std::string::npos);
}

ModelSpec of_two_kinds() {
  ModelSpec model = llama3(8, 256, 8, 512);
  model.kinds.resize(2, model.kinds.front());
  model.kinds[0].name = "window";
  model.kinds[0].window = 100;
  model.kinds[1].name = "full";
  model.pattern = {0, 0, 1};
  return model;
}

TEST(Model, HasKindsOfLayers) {
  const ModelSpec model = of_two_kinds();
  EXPECT_TRUE(check(model).empty());
  EXPECT_EQ(model.kind_of(5).name, "full");
  EXPECT_EQ(layers_of_kinds(model), (std::vector<std::int64_t>{6, 2}));
  EXPECT_EQ(pattern_in_words(model), "6 layers of window (100), 2 of full");
  const ModelSpec one = one_layer(model);
  EXPECT_EQ(pattern_in_words(one), "window of 100");
  EXPECT_EQ(parameter_count(one) + 7 * layer_parameter_count(one), parameter_count(model));
}

TEST(Model, HasExperts) {
  ModelSpec model = llama3(2, 256, 8, 512);
  const std::int64_t dense = parameter_count(model);
  model.experts = 8;
  model.active_experts = 2;
  const std::int64_t each = 3 * model.hidden * model.feed_forward, router = 8 * model.hidden;
  EXPECT_EQ(parameter_count(model), dense + 2 * (7 * each + router));
  EXPECT_EQ(active_parameter_count(model), dense + 2 * (each + router));
  EXPECT_EQ(pattern_in_words(model), "a token takes 2 of 8 experts");
  model.kinds.front().window = 100;
  EXPECT_EQ(pattern_in_words(model), "window of 100; a token takes 2 of 8 experts");
  EXPECT_TRUE(check(model).empty());
  EXPECT_TRUE(divides_layers(model, 1));
  EXPECT_FALSE(divides_layers(model, 2));
  for (const std::int64_t active : {0, 9, -1}) {
    model.active_experts = active;
    ASSERT_EQ(check(model).size(), 1U);
    EXPECT_NE(check(model).front().message.find("expected 1 to 8"), std::string::npos);
  }
  model.active_experts = 2;
  for (const double balance : {-1.0, 1e4, std::nan("")}) {
    model.balance_loss = balance;
    ASSERT_EQ(check(model).size(), 1U);
    EXPECT_NE(check(model).front().message.find("balance_loss: expected 0 to 1e3"),
              std::string::npos);
  }
  model.balance_loss = 0, model.z_loss = -1;
  ASSERT_EQ(check(model).size(), 1U);
  EXPECT_NE(check(model).front().message.find("z_loss: expected 0 to 1e3"), std::string::npos);
  model.z_loss = 0;
  model.bias = true;
  EXPECT_TRUE(check(model).empty());
  const std::int64_t biases = 2 * model.feed_forward + model.hidden;  // of an expert
  const std::int64_t shared = 8 + model.hidden;  // of the router and of the output projection
  EXPECT_EQ(parameter_count(model), dense + 2 * (7 * each + router + 8 * biases + shared));
  EXPECT_EQ(active_parameter_count(model), dense + 2 * (each + router + 2 * biases + shared));
  model.sigmoid_router = true;
  EXPECT_TRUE(check(model).empty());
  EXPECT_EQ(parameter_count(model), dense + 2 * (7 * each + router + 8 * biases + shared + 8));
  for (double* const loss : {&model.balance_loss, &model.z_loss}) {
    *loss = 0.1;
    EXPECT_NE(check(model).front().message.find("sigmoid_router: expected false beside"),
              std::string::npos);
    *loss = 0;
  }
  model.sigmoid_router = false;
  model.expert_scale = 0;
  EXPECT_NE(check(model).front().message.find("expert_scale: expected a positive"),
            std::string::npos);
  model.expert_scale = 1;
  model.post_norms = true;
  EXPECT_EQ(check(model).size(), 2U) << "beside experts, and beside biases";
  ModelSpec without = llama3(2, 256, 8, 512);
  without.balance_loss = 0.1;
  EXPECT_NE(check(without).front().message.find("without experts"), std::string::npos);
  without.balance_loss = 0, without.sigmoid_router = true;
  EXPECT_NE(check(without).front().message.find("without experts"), std::string::npos);
  without.sigmoid_router = false, without.expert_scale = 2;
  EXPECT_NE(check(without).front().message.find("expert_scale"), std::string::npos);
  without.expert_scale = 1, without.shared_feed_forward = 8;
  EXPECT_NE(check(without).front().message.find("shared_feed_forward"), std::string::npos);
  without.shared_feed_forward = 0, without.kinds.front().dense_feed_forward = 8;
  EXPECT_NE(check(without).front().message.find("dense_feed_forward"), std::string::npos);
}

TEST(Model, HasDenseLayersBeforeExperts) {
  ModelSpec model = llama3(5, 256, 8, 512);
  const std::int64_t expert = 3 * model.hidden * model.feed_forward;
  const std::int64_t without = parameter_count(model) - 5 * expert;
  model.experts = 8, model.active_experts = 2;
  model.shared_feed_forward = 2 * model.feed_forward;
  model.kinds.resize(2, model.kinds.front());
  model.kinds[0].name = "dense", model.kinds[0].dense_feed_forward = 3 * model.feed_forward;
  model.kinds[1].name = "experts";
  model.leading = {0, 0};
  model.pattern = {1};
  EXPECT_TRUE(check(model).empty());
  EXPECT_EQ(pattern_in_words(model),
            "2 layers of dense, 3 of experts; a token takes 2 of 8 experts and what is shared");
  const std::int64_t router = 8 * model.hidden;
  EXPECT_EQ(parameter_count(model), without + 2 * 3 * expert + 3 * ((8 + 2) * expert + router));
  EXPECT_EQ(active_parameter_count(model),
            without + 2 * 3 * expert + 3 * ((2 + 2) * expert + router));
  const std::vector<LayerRun> runs = layer_runs(model);
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[1].first, 2);
  EXPECT_EQ(runs[1].count, 3);
  EXPECT_EQ(model_tensors(model)[3].name, "layers.0.norm1.weight");
  const ModelSpec one = one_layer(model);
  EXPECT_FALSE(one.has_experts());
  EXPECT_EQ(one.feed_forward, 3 * model.feed_forward);
  model.pattern = {1, 0};
  EXPECT_NE(check(model).front().message.find("follow each other"), std::string::npos);
  model.leading.clear(), model.pattern = {0};
  model.kinds.pop_back();
  EXPECT_NE(check(model).front().message.find("expected a kind of layers that has them"),
            std::string::npos);
}

TEST(Model, RefusesPatternsThatMeanNothing) {
  const auto finding = [](const auto& change) {
    ModelSpec model = of_two_kinds();
    change(model);
    return format_diagnostics(check(model));
  };
  const auto expect = [&](const auto& change, std::string_view message) {
    EXPECT_NE(finding(change).find(message), std::string::npos) << finding(change);
  };
  expect([](ModelSpec& model) { model.pattern.clear(); }, "pattern: expected the kinds of 1 to 8");
  expect([](ModelSpec& model) { model.pattern.resize(9); },
         "pattern: expected the kinds of 1 to 8");
  expect([](ModelSpec& model) { model.pattern = {0}; }, "no layer is of kind \"full\"");
  expect([](ModelSpec& model) { model.kinds[1].name = "window"; }, "found \"window\"");
  expect([](ModelSpec& model) { model.kinds[1].name = "F F"; }, "found \"F F\"");
  expect([](ModelSpec& model) { model.kinds[1].name = "0"; }, "beginning with a letter");
  expect([](ModelSpec& model) { model.kinds[0].window = -1; }, "window: expected 0 to 2^31 - 1");
  expect([](ModelSpec& model) { model.kinds[1].rotary.theta = 0; }, "full.rotary: expected theta");
  expect([](ModelSpec& model) { model.kinds.clear(); }, "kinds: expected 1 to 8, found 0");
}

TEST(Model, CountsThePairsOfABand) {
  for (const std::int64_t window : {1, 5, 20, 30}) {
    std::int64_t pairs = 0;
    for (std::int64_t q = 0; q < 20; ++q) pairs += std::min(q + 1, window);
    EXPECT_EQ(attended_pairs({.name = "", .window = window, .rotary = {}}, 20),
              static_cast<double>(pairs));
  }
  EXPECT_EQ(attended_pairs({}, 20), 210);
}

TEST(Model, OnlyMatricesDecay) {
  ModelSpec model = llama3(2, 256, 8, 512);
  model.qk_norm = true;
  for (const TensorSpec& tensor : layer_tensors(model)) {
    EXPECT_EQ(tensor.decay, tensor.shape.size() == 2) << tensor.name;
  }
}

// int(head_dim * fraction), as in transformers. Its frequencies for an odd number of dimensions are
// not those of the next even one.
TEST(Model, RotatesAnEvenNumberOfDimensions) {
  struct Rotation {
    std::int64_t head_dim;
    double fraction;
    std::int64_t dimensions;
  };
  for (const Rotation& one : {Rotation{128, 0.25, 32},
                              {12, 0.25, 3},
                              {6, 0.5, 3},
                              {10, 0.5, 5},
                              {10, 0.45, 4},
                              {10, 0.39, 3},
                              {7, 1, 7},
                              {6, 0.25, 1},
                              {6, 0.15, 0}}) {
    ModelSpec model = llama3(1, 256, 8, 512);
    model.head_dim = one.head_dim;
    model.kinds.front().rotary.fraction = one.fraction;
    EXPECT_EQ(model.rotary_dim(model.kinds.front()), one.dimensions)
        << one.head_dim << " x " << one.fraction;
    EXPECT_EQ(check(model).empty(), one.dimensions % 2 == 0) << one.head_dim;
  }
}

TEST(Model, FindsWhatCannotBe) {
  ModelSpec model = llama3(2, 256, 8, 512);
  EXPECT_TRUE(check(model).empty());
  model.kv_heads = 3;
  EXPECT_EQ(check(model).front().code, "M102");
  model.kv_heads = 8;
  model.layers = 1000000000;
  EXPECT_EQ(check(model).front().code, "M101");
  model.layers = -1;
  EXPECT_EQ(check(model).front().code, "M101");
  model.layers = 2;
  model.norm_epsilon = 0;
  EXPECT_EQ(check(model).front().code, "M102");
  model.norm_epsilon = 1e-5;
  model.kinds.front().rotary.magnitude = 0;
  EXPECT_EQ(check(model).front().code, "M102");
  model.kinds.front().rotary.magnitude = 1;
  model.kinds.front().rotary.factor = 2;
  model.kinds.front().rotary.high_frequency_factor = 1;
  EXPECT_EQ(check(model).front().code, "M102") << "there is no range between 1 and 1";
  model.kinds.front().rotary.scaling = RotaryScaling::linear;
  EXPECT_TRUE(check(model).empty()) << "linear scaling has none";
  const auto message = [&](auto change) {
    ModelSpec changed = llama3(2, 256, 8, 512);
    RotarySpec& rotary = changed.kinds.front().rotary;
    rotary.scaling = RotaryScaling::longrope;
    rotary.short_factors = rotary.long_factors = std::vector<double>(64, 2.0);
    rotary.factor = 1;
    change(rotary);
    return format_diagnostics(check(changed));
  };
  EXPECT_EQ(message([](RotarySpec&) {}), "");
  EXPECT_THAT(message([](RotarySpec& one) { one.short_factors.pop_back(); }),
              HasSubstr("rotary.short_factors: expected 64 positive numbers, one for each pair of "
                        "dimensions, found 63"));
  EXPECT_THAT(message([](RotarySpec& one) { one.long_factors[3] = 0; }),
              HasSubstr("rotary.long_factors: expected 64 positive numbers"));
  EXPECT_THAT(message([](RotarySpec& one) { one.factor = 2; }), HasSubstr("expected 1, since"));
  EXPECT_THAT(message([](RotarySpec& one) { one.scaling = RotaryScaling::yarn; }),
              HasSubstr("expected 0 positive numbers, which only longrope has, found 64"));
  model = llama3(2, 256, 8, 512);
  model.heads = 65536;
  model.head_dim = 512;
  EXPECT_EQ(check(model).front().code, "M102") << "wider than any";
  model = llama3(2, 256, 8, 512);
  model.layers = 10000;
  model.hidden = model.feed_forward = 1 << 20;
  EXPECT_EQ(check(model).front().code, "M102") << "more parameters than can be counted";
}

}  // namespace
}  // namespace fpdt
