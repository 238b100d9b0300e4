// AdamW (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2) with the gradient clipped by its
// global norm.
#pragma once

#include <cstdint>

#include "fpdt/reference/parameters.h"
#include "fpdt/spec/model.h"
#include "fpdt/spec/strategy.h"

namespace fpdt::reference {

// Both moments start as zeros(model).
struct Moments {
  Parameters m, v;
};

// sqrt of the sum of squares over all tensors.
double global_norm(const Parameters& gradients);

// Step t = 1, 2, ... in place, with g = coefficient * gradient:
//   m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
//   p = p - rate * (m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon) + weight_decay p)
// The coefficient is exactly min(1, clip / norm): no epsilon in the quotient, 1 when clip is 0.
// weight_decay is that of tensors with TensorSpec.decay, 0 for the others. Returns the norm before
// clipping; nothing changes when it is not finite.
double adamw(const ModelSpec& model, const OptimizerSpec& optimizer, double learning_rate,
             std::int64_t t, const Parameters& gradients, Parameters& parameters, Moments& moments);

}  // namespace fpdt::reference
