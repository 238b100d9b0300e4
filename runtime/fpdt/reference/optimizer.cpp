// One AdamW step with clipping by the global norm.
#include "fpdt/reference/optimizer.h"

#include <cmath>

#include "fpdt/base/assert.h"

namespace fpdt::reference {

double global_norm(const Parameters& gradients) {
  double sum = 0;
  for (const auto& [name, values] : gradients.tensors) {
    for (const double value : values) sum += value * value;
  }
  return std::sqrt(sum);
}

double adamw(const ModelSpec& model, const OptimizerSpec& optimizer, double learning_rate,
             std::int64_t t, const Parameters& gradients, Parameters& parameters,
             Moments& moments) {
  FPDT_ASSERT(t >= 1);
  const double norm = global_norm(gradients);
  if (!std::isfinite(norm)) return norm;
  const bool clipped = optimizer.clip > 0 && norm > optimizer.clip;
  const double coefficient = clipped ? optimizer.clip / norm : 1;
  const double correction1 = 1 - std::pow(optimizer.beta1, static_cast<double>(t));
  const double correction2 = 1 - std::pow(optimizer.beta2, static_cast<double>(t));
  for (const TensorSpec& tensor : model_tensors(model)) {
    const Matrix& gradient = gradients.tensors.at(tensor.name);
    Matrix& p = parameters.tensors.at(tensor.name);
    Matrix& m = moments.m.tensors.at(tensor.name);
    Matrix& v = moments.v.tensors.at(tensor.name);
    const double decay = tensor.decay ? optimizer.weight_decay : 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double g = coefficient * gradient.at(i);
      m.at(i) = optimizer.beta1 * m.at(i) + (1 - optimizer.beta1) * g;
      v.at(i) = optimizer.beta2 * v.at(i) + (1 - optimizer.beta2) * g * g;
      const double direction =
          m[i] / correction1 / (std::sqrt(v[i] / correction2) + optimizer.epsilon);
      p[i] -= learning_rate * (direction + decay * p[i]);
    }
  }
  return norm;
}

}  // namespace fpdt::reference
