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

TEST(Experts, AreWeightedByTheSoftmaxOfThoseTaken) {
  const Matrix n{100}, up{1, 1, 1}, down{1, 10, 100};
  const Matrix router{std::log(2) / 100, std::log(4) / 100, std::log(2) / 100};
  // Of equal ones the first is taken.
  EXPECT_NEAR(experts(tiny(2), n, {router, up, down})[0], 100 * (4 * 10 + 2 * 1) / 6.0, 1e-9);
  ModelSpec model = tiny(2);
  model.normalised_experts = false;
  EXPECT_NEAR(experts(model, n, {router, up, down})[0], 100 * (4 * 10 + 2 * 1) / 8.0, 1e-9);
  EXPECT_NEAR(experts(tiny(3), n, {router, up, down})[0], 100 * (4 * 10 + 2 * 1 + 2 * 100) / 8.0,
              1e-9);
  // One alone has weight 1, so the router has no gradient.
  const ExpertGradients d = experts_backward(tiny(1), n, {router, up, down}, {1});
  EXPECT_EQ(d.router, (Matrix{0, 0, 0}));
  EXPECT_EQ(d.down[0], 0) << "not taken";
  EXPECT_NEAR(d.down[1], 100, 1e-9);
}

}  // namespace
}  // namespace fpdt::reference
