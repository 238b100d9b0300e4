// The non-linearity of the feed-forward: gelu (Hendrycks and Gimpel, arXiv 1606.08415), exact or
// with tanh, and gated kinds (Shazeer, arXiv 2002.05202), whose input holds F gates and then F
// values: silu(gate) * value, or gelu(gate) * value with tanh.
#pragma once

#include "fpdt/reference/matrix.h"
#include "fpdt/spec/model.h"

namespace fpdt::reference {

// x [S, 2F] for gated kinds, [S, F] for gelu; y [S, F]. `width` is F.
Matrix activation(ActivationFamily family, const Matrix& x, std::size_t width);

// dx, of the shape of x.
Matrix activation_backward(ActivationFamily family, const Matrix& x, const Matrix& dy,
                           std::size_t width);

}  // namespace fpdt::reference
