// Heads apart and together: where every head goes, how far it turns, and that joining is the
// adjoint.
#include "kernel_case.h"

namespace fpdt {
namespace {

struct HeadShape {
  std::int64_t rows, heads, kv_heads, size, ranks, rotary;
  double factor = 1;
  Dtype dtype = Dtype::f32;
  bool documents = false;
  RankExpression first{};
};

constexpr std::int64_t kRank = 1;

Rotary rotary_of(const HeadShape& s) {
  Rotary rotary;
  rotary.rotary = s.rotary, rotary.theta = 500000, rotary.factor = s.factor;
  rotary.low_factor = 1, rotary.high_factor = 4, rotary.original_positions = 8192;
  return rotary;
}

// As transformers' `_compute_llama3_parameters` has it: three cases by wavelength.
long double frequency(const Rotary& r, std::int64_t i) {
  const long double plain =
      std::pow(static_cast<long double>(r.theta),
               -2.0L * static_cast<long double>(i) / static_cast<long double>(r.rotary));
  if (r.factor == 1) return plain;
  const long double wavelength = 2 * 3.14159265358979323846L / plain;
  const auto original = static_cast<long double>(r.original_positions);
  if (wavelength < original / r.high_factor) return plain;
  if (wavelength > original / r.low_factor) return plain / r.factor;
  const long double smooth =
      (original / wavelength - r.low_factor) / (r.high_factor - r.low_factor);
  return (1 - smooth) * plain / r.factor + smooth * plain;
}

void turn(std::vector<double>& head, const Rotary& r, std::int64_t position) {
  const std::int64_t half = r.rotary / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const long double angle = static_cast<long double>(position) * frequency(r, i);
    const auto c = static_cast<double>(std::cos(angle)), s = static_cast<double>(std::sin(angle));
    const double a = head[index(i)], b = head[index(i + half)];
    head[index(i)] = a * c - b * s;
    head[index(i + half)] = a * s + b * c;
  }
}

std::vector<double> document_starts(const HeadShape& s, std::int64_t first) {
  std::vector<double> starts;
  if (!s.documents) return starts;
  for (std::int64_t t = 0; t < first + s.rows; ++t) {
    const bool early = t < first + 2;
    starts.push_back(early ? 0.0 : 2.0 + static_cast<double>(t / 3 % 2));
  }
  return starts;
}

// Angles err by 1e-16 * 10^7; what counts is f32: two products, a sum, the rounded sine and cosine.
constexpr double kTurnError = 8 * kUnit;

struct Split {
  KernelCase memory;
  SplitHeads op;
  std::int64_t own, own_kv;

  explicit Split(const HeadShape& s)
      : own(s.heads / s.ranks), own_kv(std::max<std::int64_t>(1, s.kv_heads / s.ranks)) {
    op.rows = s.rows, op.heads = s.heads, op.kv_heads = s.kv_heads, op.head_dim = s.size;
    op.ranks = s.ranks, op.rotary = rotary_of(s), op.token_first = s.first;
    op.qkv = memory.put_random(s.dtype, s.rows * (s.heads + 2 * s.kv_heads) * s.size);
    if (s.documents) op.documents = memory.put(Dtype::i32, document_starts(s, s.first.at(kRank)));
    op.q = memory.write(s.dtype, s.ranks * s.rows * own * s.size);
    op.kv = memory.write(s.dtype, s.ranks * s.rows * 2 * own_kv * s.size);
  }
};

void check_split(const HeadShape& s) {
  SCOPED_TRACE(testing::Message() << s.heads << "/" << s.kv_heads << " heads, " << s.ranks
                                  << " ranks");
  Split split(s);
  const SplitHeads& op = split.op;
  split.memory.run(op, kRank);
  const auto qkv = split.memory.values(op.qkv);
  const auto starts = document_starts(s, s.first.at(kRank));
  std::vector<double> q, kv;
  const auto head_at = [&](std::int64_t row, std::int64_t head, bool turns) {
    const auto from = qkv.begin() + (row * (s.heads + 2 * s.kv_heads) + head) * s.size;
    std::vector<double> values(from, from + s.size);
    const std::int64_t token = s.first.at(kRank) + row;
    const auto start = s.documents ? static_cast<std::int64_t>(starts[index(token)]) : 0;
    if (turns) turn(values, op.rotary, token - start);
    return values;
  };
  const auto append = [](std::vector<double>& all, const std::vector<double>& head) {
    all.insert(all.end(), head.begin(), head.end());
  };
  for (std::int64_t rank = 0; rank < s.ranks; ++rank) {
    for (std::int64_t row = 0; row < s.rows; ++row) {
      std::vector<double> values;
      for (std::int64_t head = rank * split.own; head < (rank + 1) * split.own; ++head) {
        append(q, head_at(row, head, true));
      }
      for (std::int64_t local = 0; local < split.own_kv; ++local) {
        // The KV head that the rank's query heads use.
        const std::int64_t query = rank * split.own + local * (split.own / split.own_kv);
        const std::int64_t head = query / (s.heads / s.kv_heads);
        append(kv, head_at(row, s.heads + head, true));
        append(values, head_at(row, s.heads + s.kv_heads + head, false));
      }
      append(kv, values);
    }
  }
  expect_close(split.memory.values(op.q), q, kTurnError, s.dtype);
  expect_close(split.memory.values(op.kv), kv, kTurnError, s.dtype);
}

const std::vector<HeadShape>& shapes() {
  static const std::vector<HeadShape> all{
      {3, 1, 1, 4, 1, 4},
      {5, 4, 2, 6, 2, 6, 8},
      {5, 8, 2, 8, 4, 4, 1, Dtype::f32, true},   // KV heads repeat
      {7, 6, 6, 5, 3, 0, 1, Dtype::f32, false},  // no rotary
      {4, 4, 4, 64, 2, 64, 8, Dtype::bf16, true, {3, 4, 0, 1, 4}},
      {3, 2, 1, 128, 2, 128, 8, Dtype::f32, false, {9999990, 1, 0, 1, 2}},
  };
  return all;
}

TEST(SplitHeadsKernel, PutsAndTurnsEveryHead) {
  for (const HeadShape& shape : shapes()) check_split(shape);
}

// <split(x), y> = <x, join(y)> for all x and y.
TEST(JoinHeadsKernel, IsTheAdjoint) {
  for (HeadShape s : shapes()) {
    s.dtype = Dtype::f32;
    Split split(s);
    split.memory.run(split.op, kRank);
    JoinHeads op;
    op.rows = s.rows, op.heads = s.heads, op.kv_heads = s.kv_heads, op.head_dim = s.size;
    op.ranks = s.ranks, op.rotary = split.op.rotary, op.token_first = s.first;
    op.documents = split.op.documents;
    const auto q = split.memory.values(split.op.q), kv = split.memory.values(split.op.kv);
    const auto qkv = split.memory.values(split.op.qkv);
    op.dq = split.memory.put_random(Dtype::f32, static_cast<std::int64_t>(q.size()));
    op.dkv = split.memory.put_random(Dtype::f32, static_cast<std::int64_t>(kv.size()));
    op.dqkv = split.memory.write(Dtype::f32, static_cast<std::int64_t>(qkv.size()));
    split.memory.run(op, kRank);
    const auto dot = [](const std::vector<double>& a, const std::vector<double>& b) {
      double sum = 0;
      for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
      return sum;
    };
    const double left = dot(q, split.memory.values(op.dq)) + dot(kv, split.memory.values(op.dkv));
    const double right = dot(qkv, split.memory.values(op.dqkv));
    // Each of the terms is at most 2 and errs by kTurnError.
    EXPECT_NEAR(left, right, 2 * kTurnError * static_cast<double>(q.size() + kv.size()));
  }
}

}  // namespace
}  // namespace fpdt
