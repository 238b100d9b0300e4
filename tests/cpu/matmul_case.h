// A matrix product against triple loops.
#pragma once

#include "kernel_case.h"

namespace fpdt {

struct MatmulShape {
  std::int64_t m, n, k;
  Dtype a = Dtype::f32, b = Dtype::f32, out = Dtype::f32;
  bool transpose_a = false, transpose_b = false, bias = false, addend = false, accumulate = false;
};

// Any order of k additions errs by at most k units of the sum of magnitudes (Higham, Accuracy and
// Stability, section 4.2), twice as much where sums are cut off instead of rounded, as tensor cores
// do; bias, addend and target are three more terms.
inline std::vector<Expected> naive(const KernelCase& memory, const Matmul& op,
                                   const std::vector<double>& before) {
  const auto a = memory.values(op.a), b = memory.values(op.b);
  const auto bias = op.bias.present() ? memory.values(op.bias) : std::vector<double>{};
  const auto addend = op.addend.present() ? memory.values(op.addend) : std::vector<double>{};
  std::vector<Expected> out;
  for (std::int64_t i = 0; i < op.m; ++i) {
    for (std::int64_t j = 0; j < op.n; ++j) {
      double sum = 0;
      double magnitude = 0;
      const auto add = [&](double term) {
        sum += term;
        magnitude += std::abs(term);
      };
      for (std::int64_t l = 0; l < op.k; ++l) {
        add(a[index(op.transpose_a ? l * op.m + i : i * op.k + l)] *
            b[index(op.transpose_b ? j * op.k + l : l * op.n + j)]);
      }
      if (!bias.empty()) add(bias[index(j)]);
      if (!addend.empty()) add(addend[index(i * op.n + j)]);
      if (op.out.accumulate) add(before[index(i * op.n + j)]);
      out.push_back({sum, static_cast<double>(2 * (op.k + 3)) * kUnit * magnitude});
    }
  }
  return out;
}

inline void check(const MatmulShape& shape) {
  SCOPED_TRACE(testing::Message() << shape.m << " " << shape.n << " " << shape.k << " ta "
                                  << shape.transpose_a << " tb " << shape.transpose_b);
  KernelCase memory;
  Matmul op;
  op.m = shape.m, op.n = shape.n, op.k = shape.k;
  op.transpose_a = shape.transpose_a, op.transpose_b = shape.transpose_b;
  op.a = memory.put_random(shape.a, op.m * op.k);
  op.b = memory.put_random(shape.b, op.k * op.n);
  if (shape.bias) op.bias = memory.put_random(shape.b, op.n);
  if (shape.addend) op.addend = memory.put_random(shape.a, op.m * op.n);
  op.out = shape.accumulate ? memory.accumulate(shape.out, op.m * op.n)
                            : memory.write(shape.out, op.m * op.n);
  const auto before = memory.values(op.out);
  memory.run(op);
  expect_close(memory.values(op.out), naive(memory, op, before), shape.out);
}

}  // namespace fpdt
