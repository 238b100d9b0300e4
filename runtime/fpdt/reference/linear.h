// y = x * weight^T + bias.
#pragma once

#include "fpdt/reference/matrix.h"

namespace fpdt::reference {

// x [S, in], weight [out, in], bias [out] or empty; y [S, out].
Matrix linear(const Matrix& x, const Matrix& weight, const Matrix& bias, std::size_t in);

struct LinearGradients {
  Matrix x;       // [S, in]
  Matrix weight;  // [out, in]
  Matrix bias;    // [out]
};
LinearGradients linear_backward(const Matrix& x, const Matrix& weight, const Matrix& dy,
                                std::size_t in);

}  // namespace fpdt::reference
