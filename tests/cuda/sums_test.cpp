// Promises of the GPU's embedding, cross-entropy and sums beyond the CPU's tests.
#include <array>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "../cpu/kernel_case.h"

namespace fpdt {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Memory with some space around it, which run_kernel may ask for.
template <class T>
struct Roomy {
  explicit Roomy(std::int64_t count, T value = {}) : values(index(count) + 2 * kRoom, value) {}
  T* data(std::size_t shift = 0) { return values.data() + kRoom + shift; }
  View view(std::int64_t first, std::int64_t count, Dtype dtype, Access access) {
    return {reinterpret_cast<std::byte*>(data(index(first))), count, dtype, access};
  }
  static constexpr std::size_t kRoom = 64;
  std::vector<T> values;
};

// The trainer refuses such tokens. A kernel can only stay inside its tables.
TEST(DeviceEmbedding, WordsAndPositionsOutsideOfTheirTablesReadAndWriteNothing) {
  constexpr std::int64_t kWidth = 20, kWords = 4, kPlaces = 5;
  const std::vector<double> tokens{3, 4, -1, 0, 2000000000, 1, 2};
  const auto known = [&](std::size_t row) {
    return tokens[row] >= 0 && tokens[row] < kWords && row < kPlaces;
  };
  KernelCase memory;
  Embedding op;
  op.rows = std::ssize(tokens), op.width = kWidth;
  op.tokens = memory.put(Dtype::i32, tokens);
  op.table = memory.put_random(Dtype::bf16, kWords * kWidth);
  op.positions = memory.put_random(Dtype::bf16, kPlaces * kWidth);
  op.x = memory.write(Dtype::bf16, op.rows * kWidth);
  memory.run(op);
  const auto x = memory.values(op.x);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(!std::isnan(x[i]), known(i / kWidth));

  EmbeddingBackward back;
  back.rows = op.rows, back.width = kWidth, back.tokens = op.tokens;
  back.dx = memory.put(Dtype::f32, std::vector<double>(x.size(), 1.0));
  back.dtable = memory.write(Dtype::f32, kWords * kWidth);
  back.dpositions = memory.write(Dtype::f32, kPlaces * kWidth);
  memory.run(back);
  const auto dtable = memory.values(back.dtable), dpositions = memory.values(back.dpositions);
  // Words 0, 1, 2 and 3 occur once each; so does each position, whatever its word.
  for (const double sum : dtable) EXPECT_EQ(sum, 1.0);
  for (const double sum : dpositions) EXPECT_EQ(sum, 1.0);
}

// More rows than are sorted at once, few words, and sums whose bits show their order.
TEST(DeviceEmbedding, BackwardAddsInTheOrderOfRows) {
  constexpr std::int64_t kRows = (1 << 13) + 300, kWidth = 4, kWords = 37;
  Roomy<std::int32_t> tokens(kRows);
  Roomy<float> dx(kRows * kWidth), dtable(kWords * kWidth, 0.5F);
  auto expected = dtable;
  for (std::int64_t i = 0; i < kRows * kWidth; ++i) {
    const std::int64_t word = i / kWidth * 7919 % 5003 % kWords;
    tokens.data()[i / kWidth] = static_cast<std::int32_t>(word);
    dx.data()[i] = 1.0F / static_cast<float>(i % 1013 + 3);
    expected.data()[word * kWidth + i % kWidth] += dx.data()[i];
  }
  EmbeddingBackward op;
  op.rows = kRows, op.width = kWidth;
  op.tokens.buffer = 0, op.dx.buffer = 1, op.dtable.operand.buffer = 2, op.dtable.accumulate = true;
  run_kernel(op,
             std::array{tokens.view(0, kRows, Dtype::i32, Access::read),
                        dx.view(0, kRows * kWidth, Dtype::f32, Access::read),
                        dtable.view(0, kWords * kWidth, Dtype::f32, Access::accumulate)},
             0, 1);
  EXPECT_TRUE(dtable.values == expected.values);
}

struct Statistics {
  double maximum, sum, target;
};

Statistics statistics_of(const std::vector<double>& logits) {
  KernelCase memory;
  LossStatistics op;
  op.rows = 1, op.vocab_count = std::ssize(logits);
  op.logits = memory.put(Dtype::f32, logits);
  op.labels = memory.put(Dtype::i32, {2});
  op.statistics = memory.write(Dtype::f32, 3);
  memory.run(op);
  const auto values = memory.values(op.statistics);
  return {values[0], values[1], values[2]};
}

TEST(DeviceLoss, MinusInfinityCountsNothingAndNanIsKept) {
  for (const std::size_t width : {5U, 3000U}) {
    std::vector<double> logits(width, -static_cast<double>(kInfinity));
    const Statistics none = statistics_of(logits);
    EXPECT_EQ(none.maximum, -kInfinity);
    EXPECT_EQ(none.sum, 0.0);
    logits[width - 1] = 3;
    logits[2] = 2;
    const Statistics two = statistics_of(logits);
    EXPECT_EQ(two.maximum, 3.0);
    EXPECT_NEAR(two.sum, 1 + std::exp(-1.0), 4 * kUnit);
    EXPECT_EQ(two.target, 2.0);
    logits[0] = std::nan("");
    EXPECT_TRUE(std::isnan(statistics_of(logits).sum));
  }
}

TEST(DeviceSums, EndWhereTheirOperandsEnd) {
  constexpr std::int64_t kCount = 1021;
  Roomy<float> source(kCount, std::nanf("")), sum(1);
  std::fill_n(source.data(), kCount, 2.0F);
  SquaredNorm norm;
  norm.source.buffer = 0, norm.sum.operand.buffer = 1;
  run_kernel(norm,
             std::array{source.view(0, kCount, Dtype::f32, Access::read),
                        sum.view(0, 1, Dtype::f32, Access::write)},
             0, 0);
  EXPECT_EQ(*sum.data(), 4.0F * kCount);
}

// Sums depend on sizes alone, not on the address of the operand.
TEST(DeviceSums, DoNotDependOnAlignment) {
  constexpr std::int64_t kCount = 20000;
  std::vector<std::vector<float>> results;
  for (const std::int64_t shift : {0, 1}) {
    Roomy<float> source(kCount + 1), sums(36);
    Roomy<std::int32_t> labels(5, 7);
    for (std::int64_t i = 0; i < kCount; ++i) {
      source.data()[i + shift] = 1.0F / static_cast<float>(i % 977 + 1);
    }
    const View from = source.view(shift, kCount, Dtype::f32, Access::read);
    SquaredNorm norm;
    norm.source.buffer = 0, norm.sum.operand.buffer = 1;
    run_kernel(norm, std::array{from, sums.view(0, 1, Dtype::f32, Access::write)}, 0, 0);
    ColumnSum columns;
    columns.source.buffer = 0, columns.out.operand.buffer = 1;
    columns.rows = 1000, columns.width = 20;
    run_kernel(columns, std::array{from, sums.view(1, 20, Dtype::f32, Access::write)}, 0, 0);
    LossStatistics loss;
    loss.logits.buffer = 0, loss.labels.buffer = 1, loss.statistics.operand.buffer = 2;
    loss.rows = 5, loss.vocab_count = 4000;
    run_kernel(loss,
               std::array{from, labels.view(0, 5, Dtype::i32, Access::read),
                          sums.view(21, 15, Dtype::f32, Access::write)},
               0, 0);
    results.push_back(sums.values);
  }
  EXPECT_TRUE(results[0] == results[1]);
}

}  // namespace
}  // namespace fpdt
