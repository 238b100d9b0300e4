// Attention's sinks against the formulas written out.
#include "kernel_case.h"

namespace fpdt {
namespace {

// Heads h of 2 h on the second of two ranks.
template <class Op>
Op on_the_second_rank(std::int64_t rows, std::int64_t heads) {
  Op op;
  op.q_rows = rows, op.heads = heads, op.all_heads = 2 * heads;
  op.head_first = {0, heads, 0, 1, 2};
  return op;
}

TEST(AttentionSinkKernel, IsAKeyOfValueZero) {
  for (const Dtype storage : {Dtype::f32, Dtype::bf16}) {
    for (const auto& [heads, size] : {std::pair{3, 8}, {1, 37}, {2, 128}}) {
      KernelCase memory;
      auto op = on_the_second_rank<AttentionSink>(21, heads);
      op.head_dim = size;
      op.sinks = memory.put_random(storage, 2 * heads);
      op.o = memory.accumulate(Dtype::f32, 21 * heads * size);
      op.lse = memory.accumulate(Dtype::f32, 21 * heads);
      std::vector<double> o = memory.values(op.o), lse = memory.values(op.lse);
      const std::vector<double> sinks = memory.values(op.sinks);
      for (std::size_t i = 0; i < o.size(); ++i) {
        const std::size_t row = i / index(size);
        const double seen = std::exp(lse[row]);
        o[i] *= seen / (seen + std::exp(sinks[index(heads) + row % index(heads)]));
      }
      for (std::size_t i = 0; i < lse.size(); ++i) {
        const double sink = sinks[index(heads) + i % index(heads)];
        lse[i] = std::log(std::exp(lse[i]) + std::exp(sink));
      }
      memory.run(op, 1);
      expect_close(memory.values(op.o), o, 8 * kUnit, Dtype::f32);
      expect_close(memory.values(op.lse), lse, 8 * kUnit, Dtype::f32);
    }
  }
}

// Scores that are far apart neither overflow nor give NaN.
TEST(AttentionSinkKernel, SurvivesLargeScores) {
  KernelCase memory;
  AttentionSink op;
  op.q_rows = 3, op.heads = op.all_heads = 1, op.head_dim = 2;
  op.sinks = memory.put(Dtype::f32, {100});
  op.o = {memory.put(Dtype::f32, {1, 2, 1, 2, 1, 2}), true};
  op.lse = {memory.put(Dtype::f32, {1000, 100, -1000}), true};
  memory.run(op);
  expect_close(memory.values(op.o), {1, 2, 0.5, 1, 0, 0}, 8 * kUnit, Dtype::f32);
  expect_close(memory.values(op.lse), {1000, 100 + std::log(2.0), 100}, 256 * kUnit, Dtype::f32);
}

TEST(AttentionSinkKernel, GradientIsASumOverRows) {
  for (const Dtype storage : {Dtype::f32, Dtype::bf16}) {
    for (const std::int64_t rows : {1, 40, 700}) {
      KernelCase memory;
      auto op = on_the_second_rank<AttentionSinkGradient>(rows, 2);
      op.sinks = memory.put_random(storage, 4);
      op.lse = memory.put_random(Dtype::f32, 2 * rows);
      op.delta = memory.put_random(Dtype::f32, 2 * rows);
      op.dsinks = memory.accumulate(Dtype::f32, 4);
      std::vector<double> gradient = memory.values(op.dsinks);
      const std::vector<double> sinks = memory.values(op.sinks), lse = memory.values(op.lse),
                                delta = memory.values(op.delta);
      for (std::size_t i = 0; i < lse.size(); ++i) {
        gradient[2 + i % 2] -= std::exp(sinks[2 + i % 2] - lse[i]) * delta[i];
      }
      memory.run(op, 1);
      const auto terms = static_cast<double>(rows);
      expect_close(memory.values(op.dsinks), gradient, 8 * terms * kUnit, Dtype::f32);
    }
  }
}

}  // namespace
}  // namespace fpdt
