// Sums over columns and whole buffers.
#include "kernel_case.h"

namespace fpdt {
namespace {

TEST(ColumnSumKernel, AddsRows) {
  struct Shape {
    std::int64_t rows, width;
    Dtype dtype;
    bool accumulate;
  };
  for (const Shape& s : {Shape{1, 1, Dtype::f32, false}, Shape{700, 5, Dtype::f32, true},
                         Shape{1100, 5, Dtype::f32, false}, Shape{9, 300, Dtype::bf16, true},
                         Shape{2000, 520, Dtype::bf16, false}}) {
    KernelCase memory;
    ColumnSum op;
    op.rows = s.rows, op.width = s.width;
    op.source = memory.put_random(s.dtype, s.rows * s.width);
    op.out =
        s.accumulate ? memory.accumulate(Dtype::f32, s.width) : memory.write(Dtype::f32, s.width);
    std::vector<double> sums(index(s.width), 0.0);
    if (s.accumulate) sums = memory.values(op.out);
    memory.run(op);
    const auto source = memory.values(op.source);
    for (std::size_t i = 0; i < source.size(); ++i) sums[i % index(s.width)] += source[i];
    const double rows = static_cast<double>(s.rows + 1);
    expect_close(memory.values(op.out), sums, rows * rows * kUnit, Dtype::f32);
  }
}

// The sum is computed in double and rounded once.
TEST(SquaredNormKernel, IsExactToOneRounding) {
  for (const std::int64_t count : {1, 1000, 100001}) {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      KernelCase memory;
      SquaredNorm op;
      op.source = memory.put_random(dtype, count);
      op.sum = {memory.put(Dtype::f32, {2.0}), true};
      memory.run(op);
      double sum = 0;
      for (const double value : memory.values(op.source)) sum += value * value;
      expect_close(memory.values(op.sum), {2.0 + sum}, kUnit * sum, Dtype::f32);
    }
  }
}

}  // namespace
}  // namespace fpdt
