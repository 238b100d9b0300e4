// Initial values: deterministic, with the deviation that was asked for.
#include "fpdt/reference/initial.h"

#include <cmath>

#include <gtest/gtest.h>

#include "fpdt/spec/initial.h"

#include "models.h"

namespace fpdt::reference {
namespace {

const TensorSpec kTensor{"w", {100000}, true, 0.02, 0};

std::vector<double> draw(std::uint64_t seed, const char* name, std::int64_t count) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(initial_value(seed, tensor_name_hash(name), i, kTensor));
  }
  return values;
}

double mean_product(const std::vector<double>& a, const std::vector<double>& b,
                    std::size_t shift = 0) {
  double sum = 0;
  for (std::size_t i = shift; i < a.size(); ++i) sum += a[i - shift] * b[i];
  return sum / static_cast<double>(a.size() - shift);
}

TEST(Initial, IsNormalWithTheDeviationOfTheTensor) {
  const std::vector<double> values = draw(1, "w", 100000);
  double mean = 0;
  double fourth = 0;
  double within = 0;
  for (const double value : values) {
    mean += value / 1e5;
    fourth += std::pow(value / 0.02, 4) / 1e5;
    if (std::abs(value) < 0.02) within += 1e-5;
  }
  // Five standard errors of 1e5 draws: of the mean 1/sqrt(n), of the variance sqrt(2/n), of the
  // fourth moment sqrt(96/n), of the share within one deviation sqrt(0.683 * 0.317 / n).
  EXPECT_NEAR(mean / 0.02, 0, 5 * 0.00317);
  EXPECT_NEAR(mean_product(values, values) / 4e-4, 1, 5 * 0.00448);
  EXPECT_NEAR(fourth, 3, 5 * 0.031);
  EXPECT_NEAR(within, 0.682689, 5 * 0.00148);
}

TEST(Initial, NeighboursTensorsAndSeedsAreUncorrelated) {
  const std::vector<double> values = draw(1, "w", 100000);
  const double five_errors = 5 * 4e-4 * 0.00317;
  EXPECT_NEAR(mean_product(values, values, 1), 0, five_errors);
  EXPECT_NEAR(mean_product(values, draw(2, "w", 100000)), 0, five_errors);
  EXPECT_NEAR(mean_product(values, draw(1, "x", 100000)), 0, five_errors);
}

// Checkpoints and published losses depend on these: they may never change.
TEST(Initial, ValuesAreFrozen) {
  EXPECT_EQ(tensor_name_hash(""), 0xcbf29ce484222325U);
  EXPECT_EQ(tensor_name_hash("a"), 0xaf63dc4c8601ec8cU);
  const std::uint64_t hash = tensor_name_hash("layers.3.qkv.weight");
  EXPECT_NEAR(initial_value(42, hash, 0, kTensor), -0.019465976234627053, 1e-17);
  EXPECT_NEAR(initial_value(42, hash, 1, kTensor), 0.009954635805283928, 1e-17);
}

TEST(Initial, ParametersFollowTheTensorList) {
  const ModelSpec model = gpt_model(ActivationFamily::gelu_tanh);
  const Parameters parameters = initial_parameters(model, 3);
  EXPECT_EQ(parameters.tensors, initial_parameters(model, 3).tensors);
  EXPECT_NE(parameters.tensors, initial_parameters(model, 4).tensors);
  ASSERT_EQ(parameters.tensors.size(), model_tensors(model).size());
  for (const TensorSpec& tensor : model_tensors(model)) {
    const Matrix& values = parameters.tensors.at(tensor.name);
    ASSERT_EQ(values.size(), size(tensor.elements())) << tensor.name;
    if (tensor.deviation != 0) continue;
    for (const double value : values) EXPECT_EQ(value, tensor.fill) << tensor.name;
  }
  EXPECT_NE(parameters.tensors.at("layers.0.qkv.weight"),
            parameters.tensors.at("layers.1.qkv.weight"));
}

}  // namespace
}  // namespace fpdt::reference
