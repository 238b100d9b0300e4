// Activations against values worked out by hand.
#include "fpdt/reference/activation.h"

#include <gtest/gtest.h>

namespace fpdt::reference {
namespace {

// From the definitions, evaluated with 30 digits.
constexpr double kTolerance = 1e-15;

TEST(Activation, GeluErfAtKnownPoints) {
  const Matrix y = activation(ActivationFamily::gelu_erf, {0, 1, -1}, 3);
  EXPECT_EQ(y[0], 0);
  EXPECT_NEAR(y[1], 0.841344746068542949, kTolerance);
  EXPECT_NEAR(y[2], -0.158655253931457051, kTolerance);
}

TEST(Activation, GeluTanhAtKnownPoints) {
  const Matrix y = activation(ActivationFamily::gelu_tanh, {0, 1, -1}, 3);
  EXPECT_EQ(y[0], 0);
  EXPECT_NEAR(y[1], 0.841191990608276, kTolerance);
  EXPECT_NEAR(y[2], -0.158808009391724, kTolerance);
}

TEST(Activation, SwigluGatesWithTheFirstHalf) {
  const Matrix y = activation(ActivationFamily::swiglu, {1, 0, 3, 5, -1, 2, 10, 0}, 2);
  ASSERT_EQ(y.size(), 4U);
  EXPECT_NEAR(y[0], 3 * 0.731058578630004879, 3 * kTolerance);
  EXPECT_EQ(y[1], 0);
  EXPECT_NEAR(y[2], -10 * 0.268941421369995121, 10 * kTolerance);
  EXPECT_EQ(y[3], 0);
}

}  // namespace
}  // namespace fpdt::reference
