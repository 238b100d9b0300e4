// RMSNorm and LayerNorm, and their gradients.
#include "fpdt/reference/norm.h"

#include <cmath>

#include "fpdt/base/assert.h"

namespace fpdt::reference {
namespace {

// A row x becomes z = (x - mean) * rate; RMSNorm is the case mean = 0.
struct Statistics {
  double mean = 0;
  double rate = 0;  // 1 / sqrt(mean((x - mean)^2) + epsilon)
};

Statistics statistics(NormFamily family, double epsilon, const double* x, std::size_t width) {
  const double n = static_cast<double>(width);
  Statistics s;
  if (family == NormFamily::layer) {
    for (std::size_t i = 0; i < width; ++i) s.mean += x[i] / n;
  }
  double variance = 0;
  for (std::size_t i = 0; i < width; ++i) variance += (x[i] - s.mean) * (x[i] - s.mean) / n;
  s.rate = 1.0 / std::sqrt(variance + epsilon);
  return s;
}

}  // namespace

Matrix norm(NormFamily family, double epsilon, const Matrix& x, const Matrix& weight,
            const Matrix& bias) {
  const std::size_t width = weight.size();
  FPDT_ASSERT(width > 0 && x.size() % width == 0 && (bias.empty() || bias.size() == width));
  Matrix y(x.size());
  for (std::size_t row = 0; row < x.size(); row += width) {
    const Statistics s = statistics(family, epsilon, &x[row], width);
    for (std::size_t i = 0; i < width; ++i) {
      y[row + i] = (x[row + i] - s.mean) * s.rate * weight[i] + (bias.empty() ? 0.0 : bias[i]);
    }
  }
  return y;
}

// With z = (x - mean) * rate and dz = dy * w, dx = rate * (dz - mean(dz) - z * mean(dz * z)).
// RMSNorm lacks the term mean(dz).
NormGradients norm_backward(NormFamily family, double epsilon, const Matrix& x,
                            const Matrix& weight, const Matrix& dy) {
  const std::size_t width = weight.size();
  const double n = static_cast<double>(width);
  FPDT_ASSERT(x.size() == dy.size());
  NormGradients d{Matrix(x.size()), Matrix(width), Matrix(width)};
  for (std::size_t row = 0; row < x.size(); row += width) {
    const Statistics s = statistics(family, epsilon, &x[row], width);
    double mean_dz = 0;
    double mean_dz_z = 0;
    for (std::size_t i = 0; i < width; ++i) {
      const double z = (x[row + i] - s.mean) * s.rate;
      const double dz = dy[row + i] * weight[i];
      d.weight[i] += dy[row + i] * z;
      d.bias[i] += dy[row + i];
      if (family == NormFamily::layer) mean_dz += dz / n;
      mean_dz_z += dz * z / n;
    }
    for (std::size_t i = 0; i < width; ++i) {
      const double z = (x[row + i] - s.mean) * s.rate;
      const double dz = dy[row + i] * weight[i];
      d.x[row + i] = s.rate * (dz - mean_dz - z * mean_dz_z);
    }
  }
  return d;
}

}  // namespace fpdt::reference
