// Normalisation of each row: RMSNorm (Zhang and Sennrich, arXiv 1910.07467), x / sqrt(mean(x^2) +
// epsilon) * w, and LayerNorm (Ba et al., arXiv 1607.06450), (x - mean) / sqrt(variance + epsilon)
// * w + b, biased variance.
#pragma once

#include "fpdt/reference/matrix.h"
#include "fpdt/spec/model.h"

namespace fpdt::reference {

// x [S, E], weight [E], bias [E] or empty; y [S, E].
Matrix norm(NormFamily family, double epsilon, const Matrix& x, const Matrix& weight,
            const Matrix& bias);

struct NormGradients {
  Matrix x;       // [S, E]
  Matrix weight;  // [E]
  Matrix bias;    // [E]
};
NormGradients norm_backward(NormFamily family, double epsilon, const Matrix& x,
                            const Matrix& weight, const Matrix& dy);

}  // namespace fpdt::reference
