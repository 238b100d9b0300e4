// Tensors and exact parameter counts.
#include "fpdt/spec/model.h"

#include <gtest/gtest.h>

#include "problems.h"

namespace fpdt {
namespace {

using test::llama3;

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
    model.rotary.fraction = one.fraction;
    EXPECT_EQ(model.rotary_dim(), one.dimensions) << one.head_dim << " x " << one.fraction;
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
  model.rotary.magnitude = 0;
  EXPECT_EQ(check(model).front().code, "M102");
  model.rotary.magnitude = 1;
  model.rotary.factor = 2;
  model.rotary.high_frequency_factor = 1;
  EXPECT_EQ(check(model).front().code, "M102") << "there is no range between 1 and 1";
  model.rotary.scaling = RotaryScaling::linear;
  EXPECT_TRUE(check(model).empty()) << "linear scaling has none";
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
