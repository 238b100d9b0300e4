// AdamW on an example worked out by hand.
#include "fpdt/reference/optimizer.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "models.h"

namespace fpdt::reference {
namespace {

constexpr double kStepTolerance = 1e-15;

// A model of width 1. The tests follow two elements: embed.weight[0], which decays, and
// final_norm.weight[0], which does not.
class Optimizer : public ::testing::Test {
 protected:
  Optimizer() {
    model_.layers = 1;
    model_.hidden = model_.heads = model_.kv_heads = model_.head_dim = 1;
    model_.feed_forward = model_.vocabulary = 1;
    parameters_ = gradients_ = moments_.m = moments_.v = zeros(model_);
    parameter("embed.weight") = 2;
    parameter("final_norm.weight") = 2;
    settings_ = {0.5, 0.75, 0, 0.1, 0};
  }

  double& parameter(const char* name) { return parameters_.tensors.at(name).at(0); }
  double& gradient(const char* name) { return gradients_.tensors.at(name).at(0); }
  double step(std::int64_t t) {
    return adamw(model_, settings_, 0.01, t, gradients_, parameters_, moments_);
  }

  ModelSpec model_;
  OptimizerSpec settings_;
  Parameters parameters_, gradients_;
  Moments moments_;
};

TEST_F(Optimizer, TakesTwoStepsByHand) {
  gradient("embed.weight") = 4;
  gradient("final_norm.weight") = 3;
  EXPECT_EQ(step(1), 5);
  // At t = 1 the corrected moments are g and g^2: a step of one learning rate.
  EXPECT_NEAR(parameter("embed.weight"), 2 - 0.01 * (1 + 0.1 * 2), kStepTolerance);
  EXPECT_NEAR(parameter("final_norm.weight"), 2 - 0.01, kStepTolerance);
  EXPECT_EQ(moments_.m.tensors.at("embed.weight")[0], 2);  // 0.5 * 4
  EXPECT_EQ(moments_.v.tensors.at("embed.weight")[0], 4);  // 0.25 * 16

  gradient("embed.weight") = -4;
  gradient("final_norm.weight") = 0;
  step(2);
  // embed: m = 0.5*2 - 0.5*4 = -1, /0.75;  v = 0.75*4 + 0.25*16 = 7, /0.4375 = 16.
  EXPECT_EQ(moments_.m.tensors.at("embed.weight")[0], -1);
  EXPECT_EQ(moments_.v.tensors.at("embed.weight")[0], 7);
  EXPECT_NEAR(parameter("embed.weight"), 1.988 - 0.01 * (-1 / 0.75 / 4 + 0.1 * 1.988),
              kStepTolerance);
}

TEST_F(Optimizer, AddsEpsilonAfterTheRoot) {
  settings_.epsilon = 1;
  gradient("final_norm.weight") = 3;
  step(1);
  EXPECT_NEAR(parameter("final_norm.weight"), 2 - 0.01 * 3 / 4, kStepTolerance);
}

TEST_F(Optimizer, ClipsByTheNormOfAllTensors) {
  settings_.clip = 1;
  gradient("embed.weight") = 4;
  gradient("final_norm.weight") = 3;
  EXPECT_EQ(step(1), 5);
  EXPECT_NEAR(moments_.m.tensors.at("embed.weight")[0], 0.5 * 4 / 5, kStepTolerance);
  EXPECT_NEAR(moments_.v.tensors.at("final_norm.weight")[0], 0.25 * 0.6 * 0.6, kStepTolerance);
}

TEST_F(Optimizer, LeavesGradientsUnderTheClipAlone) {
  settings_.clip = 5;
  gradient("embed.weight") = 4;
  gradient("final_norm.weight") = 3;
  step(1);
  EXPECT_EQ(moments_.m.tensors.at("embed.weight")[0], 2);
}

TEST_F(Optimizer, ChangesNothingWhenTheNormIsNotFinite) {
  for (const double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    gradient("embed.weight") = 4;
    gradient("head.weight") = bad;
    const Parameters before = parameters_;
    EXPECT_FALSE(std::isfinite(step(1)));
    EXPECT_EQ(parameters_.tensors, before.tensors);
    EXPECT_EQ(moments_.m.tensors, zeros(model_).tensors);
    EXPECT_EQ(moments_.v.tensors, zeros(model_).tensors);
  }
}

TEST_F(Optimizer, LowersTheLossOfARealModel) {
  const ModelSpec model = llama3_model();
  const std::vector<Sample> samples{random_sample(model, {5, 6}, 4)};
  Parameters parameters = random_parameters(model, 9);
  Moments moments{zeros(model), zeros(model)};
  const double before = loss(model, parameters, samples, 1);
  for (std::int64_t t = 1; t <= 10; ++t) {
    const Step step = loss_and_gradients(model, parameters, samples, 1);
    adamw(model, OptimizerSpec{}, 0.01, t, step.gradients, parameters, moments);
  }
  EXPECT_LT(loss(model, parameters, samples, 1), 0.8 * before);
}

}  // namespace
}  // namespace fpdt::reference
