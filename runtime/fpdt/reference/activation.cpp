// Activations and their derivatives, element by element.
#include "fpdt/reference/activation.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "fpdt/base/assert.h"

namespace fpdt::reference {
namespace {

struct ValueAndSlope {
  double value = 0;
  double slope = 0;
};

// x * sigmoid(x)
ValueAndSlope silu(double x) {
  const double sigmoid = 1.0 / (1.0 + std::exp(-x));
  return {x * sigmoid, sigmoid + x * sigmoid * (1.0 - sigmoid)};
}

// x * Phi(x), Phi the normal distribution function.
ValueAndSlope gelu_erf(double x) {
  const double cumulative = 0.5 * (1.0 + std::erf(x / std::sqrt(2.0)));
  const double density = std::exp(-0.5 * x * x) / std::sqrt(2.0 * std::numbers::pi);
  return {x * cumulative, cumulative + x * density};
}

// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
ValueAndSlope gelu_tanh(double x) {
  const double rate = std::sqrt(2.0 / std::numbers::pi);
  const double h = std::tanh(rate * (x + 0.044715 * x * x * x));
  const double h_slope = (1.0 - h * h) * rate * (1.0 + 3.0 * 0.044715 * x * x);
  return {0.5 * x * (1.0 + h), 0.5 * (1.0 + h) + 0.5 * x * h_slope};
}

ValueAndSlope gelu(ActivationFamily family, double x) {
  return family == ActivationFamily::gelu_erf ? gelu_erf(x) : gelu_tanh(x);
}

bool is_gated(ActivationFamily family) {
  return family != ActivationFamily::gelu_tanh && family != ActivationFamily::gelu_erf;
}

// Of gpt-oss: g sigmoid(1.702 g) of the gate g, at most 7, and u + 1 of up u, between -7 and 7.
ValueAndSlope clamped_gate(double x) {
  constexpr double kRate = 1.702;
  const double g = std::min(x, 7.0);
  const double sigmoid = 1.0 / (1.0 + std::exp(-kRate * g));
  return {g * sigmoid, x > 7 ? 0 : sigmoid + kRate * g * sigmoid * (1.0 - sigmoid)};
}
ValueAndSlope clamped_up(double x) {
  return {std::clamp(x, -7.0, 7.0) + 1, x < -7 || x > 7 ? 0.0 : 1.0};
}

ValueAndSlope gate_of(ActivationFamily family, double x) {
  if (family == ActivationFamily::clamped_swiglu) return clamped_gate(x);
  return family == ActivationFamily::swiglu ? silu(x) : gelu_tanh(x);
}

// What multiplies the gate.
ValueAndSlope up_of(ActivationFamily family, double x) {
  return family == ActivationFamily::clamped_swiglu ? clamped_up(x) : ValueAndSlope{x, 1};
}

}  // namespace

Matrix activation(ActivationFamily family, const Matrix& x, std::size_t width) {
  if (!is_gated(family)) {
    Matrix y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = gelu(family, x[i]).value;
    return y;
  }
  const std::size_t rows = x.size() / (2 * width);
  FPDT_ASSERT(x.size() == rows * 2 * width);
  Matrix y(rows * width);
  for (std::size_t t = 0; t < rows; ++t) {
    for (std::size_t i = 0; i < width; ++i) {
      const double gate = x[t * 2 * width + i];
      const double value = x[t * 2 * width + width + i];
      y[t * width + i] = gate_of(family, gate).value * up_of(family, value).value;
    }
  }
  return y;
}

Matrix activation_backward(ActivationFamily family, const Matrix& x, const Matrix& dy,
                           std::size_t width) {
  Matrix dx(x.size());
  if (!is_gated(family)) {
    FPDT_ASSERT(dy.size() == x.size());
    for (std::size_t i = 0; i < x.size(); ++i) dx[i] = dy[i] * gelu(family, x[i]).slope;
    return dx;
  }
  const std::size_t rows = x.size() / (2 * width);
  FPDT_ASSERT(dy.size() == rows * width);
  for (std::size_t t = 0; t < rows; ++t) {
    for (std::size_t i = 0; i < width; ++i) {
      const std::size_t gate_index = t * 2 * width + i;
      const std::size_t value_index = gate_index + width;
      const ValueAndSlope gate = gate_of(family, x[gate_index]);
      const ValueAndSlope up = up_of(family, x[value_index]);
      dx[gate_index] = dy[t * width + i] * gate.slope * up.value;
      dx[value_index] = dy[t * width + i] * gate.value * up.slope;
    }
  }
  return dx;
}

}  // namespace fpdt::reference
