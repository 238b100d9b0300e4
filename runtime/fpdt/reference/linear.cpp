// y = x W^T + b and its gradients as plain loops.
#include "fpdt/reference/linear.h"

#include "fpdt/base/assert.h"

namespace fpdt::reference {

Matrix linear(const Matrix& x, const Matrix& weight, const Matrix& bias, std::size_t in) {
  const std::size_t rows = x.size() / in;
  const std::size_t out = weight.size() / in;
  FPDT_ASSERT(out > 0 && x.size() == rows * in && weight.size() == out * in);
  FPDT_ASSERT(bias.empty() || bias.size() == out);
  Matrix y(rows * out);
  for (std::size_t t = 0; t < rows; ++t) {
    for (std::size_t o = 0; o < out; ++o) {
      double sum = bias.empty() ? 0.0 : bias[o];
      for (std::size_t i = 0; i < in; ++i) sum += x[t * in + i] * weight[o * in + i];
      y[t * out + o] = sum;
    }
  }
  return y;
}

LinearGradients linear_backward(const Matrix& x, const Matrix& weight, const Matrix& dy,
                                std::size_t in) {
  const std::size_t rows = x.size() / in;
  const std::size_t out = weight.size() / in;
  FPDT_ASSERT(dy.size() == rows * out);
  LinearGradients d{Matrix(x.size()), Matrix(weight.size()), Matrix(out)};
  for (std::size_t t = 0; t < rows; ++t) {
    for (std::size_t o = 0; o < out; ++o) {
      const double g = dy[t * out + o];
      d.bias[o] += g;
      for (std::size_t i = 0; i < in; ++i) {
        d.x[t * in + i] += g * weight[o * in + i];
        d.weight[o * in + i] += g * x[t * in + i];
      }
    }
  }
  return d;
}

}  // namespace fpdt::reference
