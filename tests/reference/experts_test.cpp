// Experts of which one token takes some, by hand.
#include "fpdt/reference/experts.h"

#include <cmath>

#include <gtest/gtest.h>

namespace fpdt::reference {
namespace {

// Experts of one hidden unit: y = w_down * gelu(w_up * n), whose act is about its input for large
// ones.
ModelSpec tiny(std::int64_t active) {
  ModelSpec model;
  model.hidden = model.feed_forward = 1;
  model.activation = ActivationFamily::gelu_erf;
  model.experts = 3;
  model.active_experts = active;
  return model;
}

const Matrix kNone;

// Without biases.
ExpertWeights of(const Matrix& router, const Matrix& up = kNone, const Matrix& down = kNone) {
  return {router, up, down, kNone, kNone, kNone, kNone};
}

TEST(Experts, AreWeightedByTheSoftmaxOfThoseTaken) {
  const Matrix n{100}, up{1, 1, 1}, down{1, 10, 100};
  const Matrix router{std::log(2) / 100, std::log(4) / 100, std::log(2) / 100};
  // Of equal ones the first is taken.
  EXPECT_NEAR(experts(tiny(2), n, of(router, up, down))[0], 100 * (4 * 10 + 2 * 1) / 6.0, 1e-9);
  ModelSpec model = tiny(2);
  model.normalised_experts = false;
  EXPECT_NEAR(experts(model, n, of(router, up, down))[0], 100 * (4 * 10 + 2 * 1) / 8.0, 1e-9);
  EXPECT_NEAR(experts(tiny(3), n, of(router, up, down))[0], 100 * (4 * 10 + 2 * 1 + 2 * 100) / 8.0,
              1e-9);
  // One alone has weight 1, so the router has no gradient.
  const ExpertGradients d = experts_backward(tiny(1), n, of(router, up, down), {1}, {});
  EXPECT_EQ(d.router, (Matrix{0, 0, 0}));
  EXPECT_EQ(d.down[0], 0) << "not taken";
  EXPECT_NEAR(d.down[1], 100, 1e-9);
}

// Two tokens that count and one without a label, in two layers; the gradient against differences
// of the loss, whose choices stay as they are.
TEST(Balance, IsLeastWhereExpertsAreAskedEqually) {
  ModelSpec model = tiny(2);
  model.balance_loss = 0.7, model.z_loss = 0.3;
  const std::vector<std::int32_t> labels{0, -1, 5};
  const Matrix n{0.3, 0.9, -0.4};
  const auto loss = [&](const Matrix& router) {
    Balance balance(model, labels);
    balance.add(n, of(router));
    balance.add(n, of({0.1, 0.2, -0.3}));
    return balance.loss();
  };
  const Matrix router{0.5, -0.25, 1};
  Balance balance(model, labels);
  balance.add(n, of(router));
  balance.add(n, of({0.1, 0.2, -0.3}));
  const Matrix gradient = balance.gradient(n, of(router), 0.5);
  for (std::size_t e = 0; e < 3; ++e) {
    Matrix up = router, down = router;
    up[e] += 1e-6, down[e] -= 1e-6;
    double sum = 0;
    for (std::size_t t = 0; t < 3; ++t) sum += gradient[t * 3 + e] * n[t];
    EXPECT_NEAR(sum, 0.5 * (loss(up) - loss(down)) / 2e-6, 1e-8) << e;
  }
  for (std::size_t e = 0; e < 3; ++e) EXPECT_EQ(gradient[3 + e], 0) << "no label";
  // All experts chosen, or logits that are equal: X * X * (k / X) * (1 / X) = k.
  ModelSpec three = tiny(3);
  three.balance_loss = 1;
  Balance equal(three, labels);
  equal.add(n, of(router));
  EXPECT_NEAR(equal.loss(), 3, 1e-12);
  EXPECT_EQ(Balance(model, labels).loss(), 0);
  // Of X logits that are 0 the log of the sum is log X.
  three.balance_loss = 0, three.z_loss = 2;
  Balance zeros(three, labels);
  zeros.add(n, of({0, 0, 0}));
  EXPECT_NEAR(zeros.loss(), 2 * std::log(3.0) * std::log(3.0), 1e-12);
}

}  // namespace
}  // namespace fpdt::reference
