// Products of experts and the gradients of their matrices, against triple loops.
#include "experts_case.h"

namespace fpdt {
namespace {

struct GroupedShape {
  Layer layer;
  std::int64_t n, k;
  Spread spread = Spread::even;
  Dtype a = Dtype::f32, b = Dtype::f32, out = Dtype::f32;
};

// As in matmul_case.h: 2 (terms + 1) units of the sum of magnitudes.
Expected product(double start, std::int64_t first, std::int64_t end, auto&& term) {
  double sum = start, magnitude = std::abs(start);
  for (std::int64_t i = first; i < end; ++i) {
    const double one = term(i);
    sum += one;
    magnitude += std::abs(one);
  }
  return {sum, static_cast<double>(2 * (end - first + 1)) * kUnit * magnitude};
}

// A product of all experts, without its target.
GroupedMatmul grouped_matmul(ExpertsCase& rows, const GroupedShape& s, bool transpose_b,
                             bool biased) {
  KernelCase& memory = rows.memory;
  GroupedMatmul op;
  rows.set(op);
  op.n = s.n, op.k = s.k, op.transpose_b = transpose_b;
  op.a = memory.put_random(s.a, s.layer.pairs() * s.k);
  op.b = memory.put_random(s.b, s.layer.experts * s.n * s.k);
  if (biased) op.bias = memory.put_random(s.b, s.layer.experts * s.n);
  return op;
}

void check_grouped_matmul(const GroupedShape& s, bool transpose_b, bool accumulate,
                          bool biased = false) {
  SCOPED_TRACE(testing::Message() << s.layer << ", n " << s.n << " k " << s.k << " transpose_b "
                                  << transpose_b << ", biased " << biased);
  ExpertsCase rows(s.layer, s.spread);
  KernelCase& memory = rows.memory;
  GroupedMatmul op = grouped_matmul(rows, s, transpose_b, biased);
  op.out = rows.target(s.out, s.layer.pairs() * s.n, accumulate);
  const auto a = memory.values(op.a), b = memory.values(op.b), before = memory.values(op.out);
  const auto bias = biased ? memory.values(op.bias) : std::vector<double>(b.size(), 0.0);
  memory.run(op);
  std::vector<Expected> out;
  for (std::int64_t i = 0; i < s.layer.pairs() * s.n; ++i) {
    const std::int64_t pair = i / s.n, column = i % s.n;
    const std::int64_t expert = rows.choices.expert_of_pair(pair);
    const std::int64_t matrix = expert * s.n * s.k;
    out.push_back(
        product(accumulate ? before[index(i)] : 0, biased ? -1 : 0, s.k, [&](std::int64_t l) {
          if (l < 0) return bias[index(expert * s.n + column)];
          return a[index(pair * s.k + l)] *
                 b[index(matrix + (transpose_b ? column * s.k + l : l * s.n + column))];
        }));
  }
  expect_close(memory.values(op.out), out, s.out);
}

// Slices one after the other make the same bits as all experts at once, and each leaves the pairs
// of other experts alone.
void check_slices(const GroupedShape& s, bool transpose_b, std::int64_t each) {
  SCOPED_TRACE(testing::Message() << s.layer << ", slices of " << each);
  ExpertsCase rows(s.layer, s.spread);
  KernelCase& memory = rows.memory;
  GroupedMatmul op = grouped_matmul(rows, s, transpose_b, true);
  const std::int64_t matrix = s.n * s.k;
  const auto matrices = memory.values(op.b);
  GroupedGradient gradient;
  rows.set(gradient);
  gradient.n = s.n, gradient.k = s.k;
  gradient.dy = memory.put_random(s.a, s.layer.pairs() * s.n);
  gradient.x = op.a;
  GroupedSum bias;
  rows.set(bias);
  bias.width = s.n;
  bias.source = gradient.dy;
  op.out = memory.write(s.out, s.layer.pairs() * s.n);
  gradient.sum = memory.write(Dtype::f32, s.layer.experts * matrix);
  bias.sum = memory.write(Dtype::f32, s.layer.experts * s.n);
  memory.run(op);
  memory.run(gradient);
  memory.run(bias);
  const auto whole = memory.values(op.out), sums = memory.values(gradient.sum);
  const auto biases = memory.values(bias.sum);
  op.out = memory.write(s.out, s.layer.pairs() * s.n);
  std::vector<double> sliced, sliced_biases;
  const auto run = [&](auto& sum, std::int64_t elements, std::vector<double>& all) {
    sum.sum = memory.write(Dtype::f32, elements);
    memory.run(sum);
    const auto part = memory.values(sum.sum);
    all.insert(all.end(), part.begin(), part.end());
  };
  each_slice(s.layer, each, [&](const ExpertSlice& slice) {
    op.slice = gradient.slice = bias.slice = slice;
    const auto begin = matrices.begin() + slice.first * matrix;
    op.b = memory.put(s.b, {begin, begin + slice.count * matrix});
    memory.run(op);
    run(gradient, slice.count * matrix, sliced);
    run(bias, slice.count * s.n, sliced_biases);
  });
  EXPECT_EQ(memory.values(op.out), whole);
  EXPECT_EQ(sliced, sums);
  EXPECT_EQ(sliced_biases, biases);
}

void check_grouped_gradient(const GroupedShape& s, bool accumulate) {
  SCOPED_TRACE(testing::Message() << s.layer << ", n " << s.n << " k " << s.k << ", accumulate "
                                  << accumulate);
  ExpertsCase rows(s.layer, s.spread);
  KernelCase& memory = rows.memory;
  GroupedGradient op;
  rows.set(op);
  op.n = s.n, op.k = s.k;
  op.dy = memory.put_random(s.a, s.layer.pairs() * s.n);
  op.x = memory.put_random(s.b, s.layer.pairs() * s.k);
  op.sum = rows.target(Dtype::f32, s.layer.experts * s.n * s.k, accumulate);
  const auto dy = memory.values(op.dy), x = memory.values(op.x), before = memory.values(op.sum);
  memory.run(op);
  std::vector<Expected> sum;
  for (std::int64_t i = 0; i < s.layer.experts * s.n * s.k; ++i) {
    const std::int64_t expert = i / (s.n * s.k), row = i / s.k % s.n, column = i % s.k;
    const auto& ends = rows.choices.end_of_expert;
    const std::int64_t first = expert == 0 ? 0 : ends[index(expert - 1)];
    sum.push_back(product(accumulate ? before[index(i)] : 0, first, ends[index(expert)],
                          [&](std::int64_t pair) {
                            return dy[index(pair * s.n + row)] * x[index(pair * s.k + column)];
                          }));
  }
  expect_close(memory.values(op.sum), sum, Dtype::f32);
}

// One pair, several tiles an expert, sizes that no tile or pack divides, experts without a row.
std::vector<GroupedShape> grouped_shapes(Dtype a, Dtype b, Dtype out) {
  return {{{1, 1, 1}, 1, 1, Spread::even, a, b, out},
          {{19, 5, 2}, 150, 70, Spread::even, a, b, out},
          {{9, 3, 3}, 9, 37, Spread::even, a, b, out},
          {{150, 4, 1}, 40, 72, Spread::together, a, b, out},
          {{22, 3, 2}, 136, 200, Spread::even, a, b, out}};
}

void check_grouped(Dtype a, Dtype b, Dtype out) {
  for (const GroupedShape& s : grouped_shapes(a, b, out)) {
    check_grouped_matmul(s, true, false, true);
    for (const bool flag : {false, true}) {
      check_grouped_matmul(s, flag, false);
      check_grouped_gradient(s, flag);
    }
  }
  const GroupedShape even{{19, 5, 2}, 24, 40, Spread::together, a, b, out};
  check_grouped_matmul(even, false, true);
  check_grouped_matmul(even, true, true);
}

TEST(GroupedKernels, SlicesAreTheWhole) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    const std::int64_t each = dtype == Dtype::f32 ? 1 : 2;
    for (const GroupedShape& s : grouped_shapes(dtype, dtype, dtype)) {
      check_slices(s, each == 1, std::min(each, s.layer.experts));
    }
  }
}

TEST(GroupedKernels, F32) { check_grouped(Dtype::f32, Dtype::f32, Dtype::f32); }
TEST(GroupedKernels, Bf16) { check_grouped(Dtype::bf16, Dtype::bf16, Dtype::bf16); }
TEST(GroupedKernels, Bf16ToF32) { check_grouped(Dtype::bf16, Dtype::bf16, Dtype::f32); }
TEST(GroupedKernels, Mixtures) {
  const GroupedShape s{{19, 5, 2}, 37, 24, Spread::even, Dtype::bf16, Dtype::f32, Dtype::bf16};
  check_grouped_matmul(s, false, false);
  check_grouped_matmul(s, true, true);
  check_grouped_gradient(s, true);
}

// The gradient of a bias: the rows of each expert, added up, with and without their weights.
TEST(GroupedSumKernel, AddsTheRowsOfEachExpert) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    for (const GroupedShape& s : grouped_shapes(dtype, dtype, dtype)) {
      for (const bool weighted : {false, true}) {
        SCOPED_TRACE(testing::Message() << s.layer << ", width " << s.n << ", " << weighted);
        ExpertsCase rows(s.layer, s.spread);
        KernelCase& memory = rows.memory;
        GroupedSum op;
        rows.set(op);
        op.width = s.n;
        op.source = memory.put_random(s.a, s.layer.pairs() * s.n);
        if (weighted) op.weights = memory.put_random(Dtype::f32, s.layer.pairs());
        op.sum = memory.accumulate(Dtype::f32, s.layer.experts * s.n);
        std::vector<double> sum = memory.values(op.sum);
        const auto source = memory.values(op.source);
        const std::vector<double> weights =
            weighted ? memory.values(op.weights) : std::vector<double>(index(s.layer.pairs()), 1.0);
        for (std::int64_t i = 0; i < s.layer.pairs() * s.n; ++i) {
          const std::int64_t pair = i / s.n, row = rows.choices.expert_of_pair(pair);
          const double weight = weights[index(rows.choices.entry_of_pair[index(pair)])];
          sum[index(row * s.n + i % s.n)] += weight * source[index(i)];
        }
        memory.run(op);
        const auto terms = static_cast<double>(s.layer.rows + 1);
        expect_close(memory.values(op.sum), sum, terms * terms * kUnit, Dtype::f32);
      }
    }
  }
}

}  // namespace
}  // namespace fpdt
