// Embedding and its gradient; cross-entropy whole and in vocabulary tiles.
#include "kernel_case.h"

namespace fpdt {
namespace {

constexpr std::int64_t kRows = 9, kWidth = 150, kWords = 6;

// Tokens 10 to 18 of the sequence; documents start at tokens 0, 8 and 14.
const std::vector<double> kTokens{0, 5, 5, 2, 0, 5, 1, 1, 2};
const std::vector<double> kStarts{0, 0, 0, 0, 0, 0, 0, 0, 8, 8, 8, 8, 8, 8, 14, 14, 14, 14, 14};
constexpr RankExpression kFirst{.a = 0, .first = {.b = 10, .n = 2}};
constexpr std::int64_t kThisRank = 1;

std::int64_t position(std::int64_t row) {
  return 10 + row - static_cast<std::int64_t>(kStarts[index(10 + row)]);
}

TEST(EmbeddingKernel, LooksUpWordsAndPositions) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    for (const bool positions : {false, true}) {
      KernelCase memory;
      Embedding op;
      op.rows = kRows, op.width = kWidth, op.token_first = kFirst;
      op.tokens = memory.put(Dtype::i32, kTokens);
      op.table = memory.put_random(dtype, kWords * kWidth);
      op.documents = memory.put(Dtype::i32, kStarts);
      if (positions) op.positions = memory.put_random(dtype, 12 * kWidth);
      op.x = memory.write(dtype, kRows * kWidth);
      op.scale = positions ? 1 : 2.5;
      memory.run(op, kThisRank);
      const auto table = memory.values(op.table);
      std::vector<double> x;
      for (std::int64_t i = 0; i < kRows * kWidth; ++i) {
        const std::int64_t row = i / kWidth, column = i % kWidth;
        const auto word = static_cast<std::int64_t>(kTokens[index(row)]);
        x.push_back(op.scale * table[index(word * kWidth + column)]);
        if (positions)
          x.back() += memory.values(op.positions)[index(position(row) * kWidth + column)];
      }
      expect_close(memory.values(op.x), x, 4 * kUnit, dtype);
    }
  }
}

TEST(EmbeddingKernel, BackwardAddsEveryRow) {
  for (const bool accumulate : {false, true}) {
    KernelCase memory;
    EmbeddingBackward op;
    op.rows = kRows, op.width = kWidth, op.token_first = kFirst;
    op.tokens = memory.put(Dtype::i32, kTokens);
    op.documents = memory.put(Dtype::i32, kStarts);
    op.dx = memory.put_random(Dtype::bf16, kRows * kWidth);
    const auto target = [&](std::int64_t count) {
      return accumulate ? memory.accumulate(Dtype::f32, count) : memory.write(Dtype::f32, count);
    };
    op.dtable = target(kWords * kWidth);
    op.dpositions = target(12 * kWidth);
    op.scale = accumulate ? 0.75 : 1;
    auto dtable = memory.values(op.dtable), dpositions = memory.values(op.dpositions);
    if (!accumulate) dtable.assign(dtable.size(), 0.0), dpositions.assign(dpositions.size(), 0.0);
    memory.run(op, kThisRank);
    const auto dx = memory.values(op.dx);
    for (std::int64_t i = 0; i < kRows * kWidth; ++i) {
      const auto word = static_cast<std::int64_t>(kTokens[index(i / kWidth)]);
      dtable[index(word * kWidth + i % kWidth)] += op.scale * dx[index(i)];
      dpositions[index(position(i / kWidth) * kWidth + i % kWidth)] += dx[index(i)];
    }
    expect_close(memory.values(op.dtable), dtable, 10 * kUnit, Dtype::f32);
    expect_close(memory.values(op.dpositions), dpositions, 10 * kUnit, Dtype::f32);
  }
}

struct Loss {
  std::int64_t rows, vocabulary, tile;
  Dtype dtype = Dtype::f32;
  double cap = 0;
};

double capped(double x, double cap) { return cap > 0 ? cap * std::tanh(x / cap) : x; }

constexpr double kScale = 0.375;

// Checks the gradient of every tile against softmax in double.
void check_loss_gradient(const Loss& s, KernelCase& memory, const LossStatistics& statistics,
                         const std::vector<Operand>& tiles, const std::vector<double>& all,
                         const std::vector<double>& labels, const Operand& scale, double error) {
  for (std::size_t t = 0; t < tiles.size(); ++t) {
    LossGradient gradient;
    gradient.logits = tiles[t], gradient.labels = statistics.labels, gradient.scale = scale;
    gradient.statistics = statistics.statistics.operand;
    gradient.rows = s.rows, gradient.cap = s.cap;
    gradient.vocab_first = static_cast<std::int64_t>(t) * s.tile;
    gradient.vocab_count = std::min(s.tile, s.vocabulary - gradient.vocab_first);
    gradient.dlogits = memory.write(s.dtype, s.rows * gradient.vocab_count);
    memory.run(gradient);
    std::vector<double> expected;
    for (std::int64_t row = 0; row < s.rows; ++row) {
      double total = 0;
      for (std::int64_t j = 0; j < s.vocabulary; ++j)
        total += std::exp(capped(all[index(row * s.vocabulary + j)], s.cap));
      for (std::int64_t j = 0; j < gradient.vocab_count; ++j) {
        const std::int64_t word = gradient.vocab_first + j;
        const double logit = capped(all[index(row * s.vocabulary + word)], s.cap);
        const double slope = s.cap > 0 ? 1 - logit * logit / (s.cap * s.cap) : 1;
        const double p = std::exp(logit) / total;
        const double hit = static_cast<double>(word) == labels[index(row)] ? 1.0 : 0.0;
        expected.push_back(labels[index(row)] < 0 ? 0.0 : kScale * (p - hit) * slope);
      }
    }
    expect_close(memory.values(gradient.dlogits), expected, error, s.dtype);
  }
}

// Checks cross-entropy over vocabulary tiles through the kernels; every third row is masked.
void check_loss(const Loss& s) {
  SCOPED_TRACE(testing::Message() << s.rows << " rows, " << s.vocabulary << " words, tiles of "
                                  << s.tile);
  KernelCase memory;
  std::vector<double> all = memory.random(s.rows * s.vocabulary), labels;
  for (double& logit : all) logit *= 10;
  all = memory.values(memory.put(s.dtype, all));
  for (std::int64_t row = 0; row < s.rows; ++row) {
    labels.push_back(row % 3 == 2 ? -1.0 : static_cast<double>(row * 7 % s.vocabulary));
  }
  const Operand label = memory.put(Dtype::i32, labels);
  const Operand scale = memory.put(Dtype::f32, {kScale});
  LossStatistics statistics;
  statistics.labels = label, statistics.rows = s.rows, statistics.cap = s.cap;
  statistics.statistics = memory.write(Dtype::f32, 3 * s.rows);
  std::vector<Operand> tiles;
  for (std::int64_t first = 0; first < s.vocabulary; first += s.tile) {
    statistics.vocab_first = first;
    statistics.vocab_count = std::min(s.tile, s.vocabulary - first);
    std::vector<double> tile;
    for (std::int64_t i = 0; i < s.rows * statistics.vocab_count; ++i) {
      tile.push_back(all[index(i / statistics.vocab_count * s.vocabulary + first +
                               i % statistics.vocab_count)]);
    }
    statistics.logits = memory.put(s.dtype, tile);
    tiles.push_back(statistics.logits);
    memory.run(statistics);
    statistics.statistics.accumulate = true;
  }
  LossSum sum;
  sum.statistics = statistics.statistics.operand, sum.labels = label, sum.scale = scale,
  sum.rows = s.rows;
  sum.loss = {memory.put(Dtype::f32, {1.5}), true};
  memory.run(sum);

  // Logits are at most 10; an exponential errs by 10 + 4 units, sums of n terms by n more at most,
  // and a cap by 8 units of its size.
  const double error = (static_cast<double>(s.vocabulary + 32) + 8 * s.cap) * kUnit;
  double loss = 1.5;
  for (std::int64_t row = 0; row < s.rows; ++row) {
    if (labels[index(row)] < 0) continue;
    double total = 0;
    for (std::int64_t j = 0; j < s.vocabulary; ++j)
      total += std::exp(capped(all[index(row * s.vocabulary + j)], s.cap));
    const auto target = static_cast<std::int64_t>(labels[index(row)]);
    loss += kScale * (std::log(total) - capped(all[index(row * s.vocabulary + target)], s.cap));
  }
  expect_close(memory.values(sum.loss), {loss}, static_cast<double>(s.rows) * error, Dtype::f32);

  check_loss_gradient(s, memory, statistics, tiles, all, labels, scale, error);
}

TEST(LossKernels, WholeVocabulary) {
  check_loss({1, 1, 1});
  check_loss({7, 13, 13});
  check_loss({4, 2100, 2100});
}
TEST(LossKernels, VocabularyTiles) {
  check_loss({7, 13, 5});
  check_loss({4, 2100, 1100});
}
TEST(LossKernels, CapLogits) {
  check_loss({7, 13, 5, Dtype::f32, 7});
  check_loss({3, 2100, 1100, Dtype::f32, 4});
  check_loss({2, 50, 20, Dtype::bf16, 30});
}
TEST(LossKernels, Bf16) {
  check_loss({7, 50, 20, Dtype::bf16});
  check_loss({2, 4803, 2400, Dtype::bf16});
}

}  // namespace
}  // namespace fpdt
