// Backward against central differences of forward, for every parameter tensor.
#include <cmath>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "models.h"

namespace fpdt::reference {
namespace {

// (f(p+h) - f(p-h)) / 2h misses the slope by h^2/6 f''' + u |f| / h. With h = 1e-5, f about 3 and u
// = 1e-16, both terms are about 1e-11 to 1e-10. Gradients are about 1e-2.
constexpr double kStep = 1e-5;
constexpr double kSlopeTolerance =
    1e-6;  // relative, to the larger of the element and its tensor's rms
constexpr std::size_t kElements = 6;

double root_mean_square(const Matrix& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

void expect_true_gradients(const ModelSpec& model) {
  ASSERT_TRUE(check(model).empty());
  const std::vector<Sample> samples{random_sample(model, {4, 3, 1}, 7),
                                    random_sample(model, {5}, 8)};
  Parameters parameters = random_parameters(model, 1);
  const double scale = 0.1;
  const Step step = loss_and_gradients(model, parameters, samples, scale);
  EXPECT_DOUBLE_EQ(step.loss, loss(model, parameters, samples, scale));
  for (auto& [name, values] : parameters.tensors) {
    const Matrix& gradient = step.gradients.tensors.at(name);
    ASSERT_EQ(gradient.size(), values.size());
    const double rms = root_mean_square(gradient);
    // A bias of selection chooses, and choices stay as they are.
    if (name.ends_with("selection.bias")) {
      EXPECT_EQ(rms, 0);
    } else {
      EXPECT_GT(rms, 1e-5) << name << " seems to have no effect";
    }
    // A prime stride visits all rows and columns; the first and last elements are among them.
    std::set<std::size_t> elements{0, values.size() - 1};
    for (std::size_t i = 1; i <= kElements; ++i) elements.insert(i * 37 % values.size());
    for (const std::size_t i : elements) {
      const double value = values[i];
      values[i] = value + kStep;
      const double above = loss(model, parameters, samples, scale);
      values[i] = value - kStep;
      const double below = loss(model, parameters, samples, scale);
      values[i] = value;
      const double slope = (above - below) / (2 * kStep);
      EXPECT_NEAR(gradient[i], slope, kSlopeTolerance * std::max(std::abs(slope), rms))
          << model.name << " " << name << "[" << i << "]";
    }
  }
}

TEST(Gradient, Llama) { expect_true_gradients(llama_model()); }

TEST(Gradient, LlamaWithPartialScaledRotaryBiasAndTiedHead) {
  expect_true_gradients(llama3_model());
}

TEST(Gradient, LlamaWithOneKvHead) {
  ModelSpec model = llama_model();
  model.kv_heads = 1;
  expect_true_gradients(model);
}

TEST(Gradient, Qwen3WithNormedHeads) { expect_true_gradients(qwen3_model()); }

TEST(Gradient, LayersOfTwoKinds) { expect_true_gradients(windowed_model()); }

TEST(Gradient, Sinks) { expect_true_gradients(sinks_model()); }

TEST(Gradient, GemmaWithPostNorms) { expect_true_gradients(gemma_model()); }
TEST(Gradient, GemmaWithSoftCaps) { expect_true_gradients(gemma2_model()); }

TEST(Gradient, Experts) {
  for (const bool normalised : {true, false}) {
    ModelSpec model = experts_model();
    model.normalised_experts = normalised;
    expect_true_gradients(model);
    model.sigmoid_router = true;
    expect_true_gradients(model);
    model.expert_scale = 2.5;
    model.shared_feed_forward = 3;
    expect_true_gradients(model);
    model.kinds.resize(2, model.kinds.front());
    model.kinds.front().dense_feed_forward = 7;
    model.kinds.front().name = "dense", model.kinds.back().name = "experts";
    model.leading = {0};
    model.pattern = {1};
    expect_true_gradients(model);
  }
}

TEST(Gradient, ExpertsWithBiases) {
  ModelSpec model = experts_model();
  model.bias = model.qkv_bias = model.sinks = true;
  model.activation = ActivationFamily::clamped_swiglu;
  expect_true_gradients(model);
}

TEST(Gradient, GptWithParallelResidual) {
  ModelSpec model = gpt_model(ActivationFamily::gelu_erf);
  model.parallel_residual = true;
  expect_true_gradients(model);
}

TEST(Gradient, GptWithTanhGelu) { expect_true_gradients(gpt_model(ActivationFamily::gelu_tanh)); }

TEST(Gradient, GptWithExactGelu) { expect_true_gradients(gpt_model(ActivationFamily::gelu_erf)); }

TEST(Gradient, IsLinearInTheScale) {
  const ModelSpec model = llama_model();
  const Parameters parameters = random_parameters(model, 1);
  const std::vector<Sample> samples{random_sample(model, {6}, 3)};
  const Step one = loss_and_gradients(model, parameters, samples, 0.5);
  const Step two = loss_and_gradients(model, parameters, samples, 1);
  EXPECT_EQ(2 * one.loss, two.loss);  // doubling is exact in every operation
  for (const auto& [name, values] : one.gradients.tensors) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(2 * values[i], two.gradients.tensors.at(name)[i]) << name;
    }
  }
}

TEST(Gradient, OfMaskedSampleIsZero) {
  const ModelSpec model = llama_model();
  Sample sample = random_sample(model, {5}, 3);
  sample.labels.assign(5, -1);
  const Step step = loss_and_gradients(model, random_parameters(model, 1), {sample}, 1);
  EXPECT_EQ(step.loss, 0);
  for (const auto& [name, values] : step.gradients.tensors) {
    for (const double value : values) EXPECT_EQ(value, 0) << name;
  }
}

}  // namespace
}  // namespace fpdt::reference
