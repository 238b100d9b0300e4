// Splitting and joining heads: the place, norm and rotation of each head, and that joining is the
// gradient of splitting.
#include <utility>

#include "fpdt/runtime/rotary.h"

#include "kernel_case.h"

namespace fpdt {
namespace {

struct HeadShape {
  std::int64_t rows, heads, kv_heads, size, ranks, rotary;
  double factor = 1;
  Dtype dtype = Dtype::f32;
  bool documents = false;
  RankExpression first{};
  bool normed = false;
  ScalingKind scaling = ScalingKind::llama3;
  double magnitude = 1;
};

constexpr std::int64_t kRank = 1;

Rotary rotary_of(const HeadShape& s) {
  Rotary rotary;
  rotary.rotary = s.rotary, rotary.theta = 500000, rotary.factor = s.factor;
  rotary.low_factor = 1, rotary.high_factor = 4, rotary.original_positions = 8192;
  rotary.scaling = s.scaling, rotary.magnitude = s.magnitude;
  if (s.scaling != ScalingKind::longrope) return rotary;
  for (std::int64_t i = 0; i < s.rotary / 2; ++i) {
    rotary.factors.push_back(1 + 0.25 * static_cast<double>(i));
  }
  return rotary;
}

// As in transformers' `_compute_yarn_parameters`, without its guard for equal ends. It truncates
// unless exact.
long double yarn(const Rotary& r, std::int64_t i, long double plain) {
  const auto dimension = [&](double turns) {
    const double wavelength = static_cast<double>(r.original_positions) / (turns * 2 * M_PI);
    return static_cast<double>(r.rotary) * std::log(wavelength) / (2 * std::log(r.theta));
  };
  double low = dimension(r.high_factor), high = dimension(r.low_factor);
  if (r.scaling == ScalingKind::yarn) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, static_cast<double>(r.rotary - 1));
  const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
  return plain / r.factor * ramp + plain * (1 - ramp);
}

// As in transformers' `_compute_llama3_parameters`: three cases by wavelength.
long double frequency(const Rotary& r, std::int64_t i) {
  const long double plain =
      std::pow(static_cast<long double>(r.theta),
               -2.0L * static_cast<long double>(i) / static_cast<long double>(r.rotary));
  if (r.scaling == ScalingKind::longrope) return plain / r.factors[static_cast<std::size_t>(i)];
  if (r.factor == 1) return plain;
  if (r.scaling == ScalingKind::linear) return plain / r.factor;
  if (r.scaling == ScalingKind::yarn || r.scaling == ScalingKind::yarn_exact) {
    return yarn(r, i, plain);
  }
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
    head[index(i)] = r.magnitude * (a * c - b * s);
    head[index(i + half)] = r.magnitude * (a * s + b * c);
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

// Angles err by 1e-16 * 10^7, so f32 dominates: two products, a sum, the rounded sine and cosine.
// The norm of a head adds some products on numbers of at most the root of its size.
constexpr double kTurnError = 8 * kUnit;

double error_of(const HeadShape& s) {
  return s.normed ? 3 * kTurnError * std::sqrt(static_cast<double>(s.size)) * s.magnitude
                  : kTurnError * s.magnitude;
}

struct Split {
  KernelCase memory;
  SplitHeads op;

  explicit Split(const HeadShape& s) {
    op.rows = s.rows, op.heads = s.heads, op.kv_heads = s.kv_heads, op.head_dim = s.size;
    op.ranks = s.ranks, op.rotary = rotary_of(s), op.token_first = s.first, op.epsilon = 1e-2;
    op.qkv = memory.put_random(s.dtype, s.rows * (s.heads + 2 * s.kv_heads) * s.size);
    if (s.normed) {
      op.q_weight = memory.put_random(s.dtype, s.size);
      op.k_weight = memory.put_random(s.dtype, s.size);
    }
    if (s.documents) op.documents = memory.put(Dtype::i32, document_starts(s, s.first.at(kRank)));
    op.q = memory.write(s.dtype, s.rows * s.heads * s.size);
    op.kv = memory.write(
        s.dtype, s.ranks * s.rows * 2 * std::max<std::int64_t>(1, s.kv_heads / s.ranks) * s.size);
  }
};

// The operands of the op, and the results of plain loops on them.
struct Heads {
  std::vector<double> qkv, q_weight, k_weight;
};

struct Apart {
  std::vector<double> q, kv;
};

class Splitter {
 public:
  Splitter(const HeadShape& s, const SplitHeads& op)
      : s_(s), op_(op), starts_(document_starts(s, s.first.at(kRank))) {}

  [[nodiscard]] Apart split(const Heads& x) const {
    Apart apart;
    const std::int64_t own = s_.heads / s_.ranks;
    const std::int64_t own_kv = std::max<std::int64_t>(1, s_.kv_heads / s_.ranks);
    for (std::int64_t rank = 0; rank < s_.ranks; ++rank) {
      for (std::int64_t row = 0; row < s_.rows; ++row) {
        std::vector<double> values;
        for (std::int64_t head = rank * own; head < (rank + 1) * own; ++head) {
          append(apart.q, turned(x, row, head, x.q_weight));
        }
        for (std::int64_t local = 0; local < own_kv; ++local) {
          // The KV head that the rank's query heads use.
          const std::int64_t query = rank * own + local * (own / own_kv);
          const std::int64_t head = query / (s_.heads / s_.kv_heads);
          append(apart.kv, turned(x, row, s_.heads + head, x.k_weight));
          append(values, head_at(x, row, s_.heads + s_.kv_heads + head));
        }
        append(apart.kv, values);
      }
    }
    return apart;
  }

 private:
  static void append(std::vector<double>& all, const std::vector<double>& head) {
    all.insert(all.end(), head.begin(), head.end());
  }
  [[nodiscard]] std::vector<double> head_at(const Heads& x, std::int64_t row,
                                            std::int64_t head) const {
    const auto from = x.qkv.begin() + (row * (s_.heads + 2 * s_.kv_heads) + head) * s_.size;
    return {from, from + s_.size};
  }
  [[nodiscard]] std::vector<double> turned(const Heads& x, std::int64_t row, std::int64_t head,
                                           const std::vector<double>& weight) const {
    std::vector<double> values = head_at(x, row, head);
    if (s_.normed) {
      double mean = 0;
      for (const double value : values) mean += value * value / static_cast<double>(s_.size);
      const double root = std::sqrt(mean + op_.epsilon);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] *= weight[i] / root;
    }
    const std::int64_t token = s_.first.at(kRank) + row;
    const auto start = s_.documents ? static_cast<std::int64_t>(starts_[index(token)]) : 0;
    turn(values, op_.rotary, token - start);
    return values;
  }

  const HeadShape& s_;
  const SplitHeads& op_;
  std::vector<double> starts_;
};

Heads heads_of(const Split& split) {
  const SplitHeads& op = split.op;
  Heads x{split.memory.values(op.qkv), {}, {}};
  if (op.q_weight.present()) {
    x.q_weight = split.memory.values(op.q_weight);
    x.k_weight = split.memory.values(op.k_weight);
  }
  return x;
}

HeadShape normed(HeadShape shape) {
  shape.normed = true;
  return shape;
}

HeadShape scaled(HeadShape shape, ScalingKind kind, double magnitude) {
  shape.scaling = kind;
  shape.magnitude = magnitude;
  return shape;
}

const std::vector<HeadShape>& shapes() {
  static const std::vector<HeadShape> all{
      {3, 1, 1, 4, 1, 4},
      {5, 4, 2, 6, 2, 6, 8},
      {5, 8, 2, 8, 4, 4, 1, Dtype::f32, true},   // KV heads repeat
      {7, 6, 6, 5, 3, 0, 1, Dtype::f32, false},  // no rotary
      {4, 4, 4, 64, 2, 64, 8, Dtype::bf16, true, {3, {4, 0, 1, 4}}},
      {3, 2, 1, 128, 2, 128, 8, Dtype::f32, false, {9999990, {1, 0, 1, 2}}},
      {3, 2, 1, 96, 1, 24, 1, Dtype::bf16},  // part of a head turns
      {5, 4, 2, 128, 2, 64, 1, Dtype::bf16, true},
      scaled({3, 2, 1, 16, 1, 16, 4}, ScalingKind::linear, 1),
      scaled({3, 2, 1, 64, 1, 64, 4}, ScalingKind::yarn, 1.25),
      scaled({3, 2, 1, 64, 1, 64, 4}, ScalingKind::yarn_exact, 1.25),
      scaled({3, 2, 1, 96, 1, 72}, ScalingKind::longrope, 1.19),
      normed({3, 1, 1, 4, 1, 4}),
      normed({5, 8, 2, 8, 4, 4, 1, Dtype::f32, true}),
      normed({4, 4, 4, 64, 2, 64, 8, Dtype::bf16, true, {3, {4, 0, 1, 4}}}),
      normed({2, 2, 1, 2048, 1, 2048}),  // the longest head: fewer sums fit side by side
  };
  return all;
}

TEST(Rotary, FrequenciesOfEveryScaling) {
  for (const HeadShape& s : shapes()) {
    const Rotary rotary = rotary_of(s);
    for (std::int64_t i = 0; i < s.rotary / 2; ++i) {
      const auto expected = static_cast<double>(frequency(rotary, i));
      EXPECT_NEAR(rotary_frequency(rotary, i), expected, 1e-14 * expected) << i;
    }
  }
}

TEST(SplitHeadsKernel, PutsNormsAndTurnsEveryHead) {
  for (const HeadShape& s : shapes()) {
    SCOPED_TRACE(testing::Message() << s.heads << "/" << s.kv_heads << " heads of " << s.size
                                    << ", " << s.ranks << " ranks");
    Split split(s);
    split.memory.run(split.op, kRank);
    const Apart apart = Splitter(s, split.op).split(heads_of(split));
    expect_close(split.memory.values(split.op.q), apart.q, error_of(s), s.dtype);
    expect_close(split.memory.values(split.op.kv), apart.kv, error_of(s), s.dtype);
  }
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// The op that joins the heads that `split` made, with random gradients of them.
JoinHeads join_of(Split& split, const HeadShape& s) {
  JoinHeads op;
  op.rows = s.rows, op.heads = s.heads, op.kv_heads = s.kv_heads, op.head_dim = s.size;
  op.ranks = s.ranks, op.rotary = split.op.rotary, op.token_first = s.first;
  op.documents = split.op.documents, op.epsilon = split.op.epsilon;
  const auto size = [&](const Operand& operand) {
    return static_cast<std::int64_t>(split.memory.values(operand).size());
  };
  op.dq = split.memory.put_random(Dtype::f32, size(split.op.q.operand));
  op.dkv = split.memory.put_random(Dtype::f32, size(split.op.kv.operand));
  op.dqkv = split.memory.write(Dtype::f32, size(split.op.qkv));
  return op;
}

// <split(x), y> = <x, join(y)> for all x and y.
TEST(JoinHeadsKernel, IsTheAdjoint) {
  for (HeadShape s : shapes()) {
    if (s.normed) continue;
    s.dtype = Dtype::f32;
    Split split(s);
    split.memory.run(split.op, kRank);
    const JoinHeads op = join_of(split, s);
    split.memory.run(op, kRank);
    const auto q = split.memory.values(split.op.q), kv = split.memory.values(split.op.kv);
    const double left = dot(q, split.memory.values(op.dq)) + dot(kv, split.memory.values(op.dkv));
    const double right = dot(split.memory.values(split.op.qkv), split.memory.values(op.dqkv));
    // Each of the terms is at most 2 and errs by kTurnError.
    EXPECT_NEAR(left, right,
                2 * kTurnError * s.magnitude * static_cast<double>(q.size() + kv.size()));
  }
}

// Columns [first, first + count) of rows of `width`.
std::vector<double> columns(const std::vector<double>& rows, std::int64_t width, std::int64_t first,
                            std::int64_t count) {
  std::vector<double> found;
  for (std::size_t at = 0; at < rows.size(); at += index(width)) {
    const auto from = rows.begin() + static_cast<std::ptrdiff_t>(at) + first;
    found.insert(found.end(), from, from + count);
  }
  return found;
}

// Queries alone and keys with values alone have the bits that they have together, both ways. A GPU
// may add the terms of weight gradients in another order, because other threads get these heads.
TEST(HeadsKernel, QueriesAndKeysMayBeApart) {
  for (const HeadShape& s : shapes()) {
    SCOPED_TRACE(testing::Message() << s.heads << "/" << s.kv_heads << " heads of " << s.size
                                    << ", " << s.ranks << " ranks");
    Split both(s);
    KernelCase& memory = both.memory;
    memory.run(both.op, kRank);
    JoinHeads joined = join_of(both, s);
    if (s.normed) {
      joined.qkv = both.op.qkv, joined.q_weight = both.op.q_weight;
      joined.k_weight = both.op.k_weight;
      joined.dq_weight = memory.write(Dtype::f32, s.size);
      joined.dk_weight = memory.write(Dtype::f32, s.size);
    }
    memory.run(joined, kRank);
    const std::int64_t width = (s.heads + 2 * s.kv_heads) * s.size;
    for (const bool queries : {true, false}) {
      const std::int64_t first = queries ? 0 : s.heads * s.size;
      const std::int64_t count = queries ? s.heads * s.size : 2 * s.kv_heads * s.size;
      SplitHeads split = both.op;
      JoinHeads join = joined;
      const Operand rows =
          memory.put(s.dtype, columns(memory.values(both.op.qkv), width, first, count));
      split.qkv = rows;
      if (s.normed) join.qkv = rows;
      (queries ? split.kv_heads : split.heads) = (queries ? join.kv_heads : join.heads) = 0;
      (queries ? split.kv : split.q) = (queries ? join.dk_weight : join.dq_weight) = {};
      (queries ? split.k_weight : split.q_weight) = {};
      (queries ? join.k_weight : join.q_weight) = (queries ? join.dkv : join.dq) = {};
      Target& made = queries ? split.q : split.kv;
      const Operand wanted = made.operand;
      made = memory.write(s.dtype, static_cast<std::int64_t>(memory.values(wanted).size()));
      memory.run(split, kRank);
      EXPECT_EQ(memory.values(made), memory.values(wanted));
      join.dqkv = memory.write(Dtype::f32, s.rows * count);
      const Operand sum = (queries ? joined.dq_weight : joined.dk_weight).operand;
      Target& of_weight = queries ? join.dq_weight : join.dk_weight;
      if (s.normed) of_weight = memory.write(Dtype::f32, s.size);
      memory.run(join, kRank);
      EXPECT_EQ(memory.values(join.dqkv), columns(memory.values(joined.dqkv), width, first, count));
      if (!s.normed) continue;
      // Each term is below 2 root(size), and passes through fewer additions than there are terms.
      const double terms = static_cast<double>(s.rows * s.heads);
      const double term = 2 * std::sqrt(static_cast<double>(s.size)) * s.magnitude;
      expect_close(memory.values(of_weight), memory.values(sum), 2 * terms * terms * term * kUnit,
                   Dtype::f32);
    }
  }
}

// Slopes of <split(x), y> by central differences in double. A step of 1e-4 makes an error of about
// 1e-8, which is below f32.
std::vector<double> slopes(const Splitter& splitter, Heads& x, std::vector<double>& along,
                           const Apart& y) {
  constexpr double kStep = 1e-4;
  std::vector<double> result;
  for (double& value : along) {
    const auto at = [&](double here) {
      const double before = std::exchange(value, here);
      const Apart apart = splitter.split(x);
      value = before;
      return dot(apart.q, y.q) + dot(apart.kv, y.kv);
    };
    result.push_back((at(value + kStep) - at(value - kStep)) / (2 * kStep));
  }
  return result;
}

TEST(JoinHeadsKernel, IsTheGradientOfNormedHeads) {
  for (HeadShape s : {HeadShape{3, 1, 1, 4, 1, 4}, HeadShape{5, 4, 2, 6, 2, 4, 8},
                      HeadShape{5, 8, 2, 8, 4, 8, 1, Dtype::f32, true},
                      HeadShape{70, 2, 1, 4, 1, 2}}) {  // more rows than sums side by side
    s.normed = true;
    Split split(s);
    JoinHeads op = join_of(split, s);
    op.qkv = split.op.qkv, op.q_weight = split.op.q_weight, op.k_weight = split.op.k_weight;
    op.dq_weight = split.memory.write(Dtype::f32, s.size);
    op.dk_weight = split.memory.accumulate(Dtype::f32, s.size);
    const std::vector<double> before = split.memory.values(op.dk_weight);
    split.memory.run(op, kRank);
    Heads x = heads_of(split);
    const Apart y{split.memory.values(op.dq), split.memory.values(op.dkv)};
    const Splitter splitter(s, split.op);
    // A gradient is 1 / root(mean), at most 10, times sums over a head, with errors of f32 and
    // differences. Gradients of weights sum over rows and heads; each term is below 2 * root(size).
    const double error = 1e-6 + 10 * 4 * error_of(s);
    expect_close(split.memory.values(op.dqkv), slopes(splitter, x, x.qkv, y), error, Dtype::f32);
    const double sums = error * static_cast<double>(s.rows * s.heads);
    std::vector<double> dk = slopes(splitter, x, x.k_weight, y);
    for (std::size_t i = 0; i < dk.size(); ++i) dk[i] += before[i];
    expect_close(split.memory.values(op.dq_weight), slopes(splitter, x, x.q_weight, y), sums,
                 Dtype::f32);
    expect_close(split.memory.values(op.dk_weight), dk, sums, Dtype::f32);
  }
}

// The same numbers as f32 and as bf16, and mixed: gradients are f32 where one rank has all heads.
void check_types(const HeadShape& shape, Dtype gradients, Dtype fused) {
  SCOPED_TRACE(testing::Message() << shape.size << " " << word(gradients) << " " << word(fused));
  HeadShape s = shape;
  s.dtype = Dtype::bf16;
  Split split(s);
  KernelCase& memory = split.memory;
  JoinHeads op = join_of(split, s);
  const auto as = [&](Operand& operand, Dtype dtype) {
    if (operand.present()) operand = memory.put(dtype, memory.values(operand));
  };
  as(op.dq, Dtype::bf16), as(op.dkv, Dtype::bf16);
  const auto run = [&](Dtype of_gradients, Dtype of_fused) {
    as(op.dq, of_gradients), as(op.dkv, of_gradients);
    op.dqkv.operand = memory.write(of_fused, s.rows * (s.heads + 2 * s.kv_heads) * s.size).operand;
    if (s.normed) {
      op.qkv = split.op.qkv, op.q_weight = split.op.q_weight, op.k_weight = split.op.k_weight;
      as(op.qkv, of_fused);
      op.dq_weight = memory.write(Dtype::f32, s.size);
      op.dk_weight = memory.write(Dtype::f32, s.size);
    }
    memory.run(op, kRank);
  };
  run(Dtype::f32, Dtype::f32);
  const JoinHeads plain = op;
  run(gradients, fused);
  const double error = s.normed ? 10 * 4 * error_of(s) : error_of(s);
  expect_close(memory.values(op.dqkv), memory.values(plain.dqkv), error, fused);
  if (!s.normed) return;
  const double sums = error * static_cast<double>(s.rows * s.heads);
  expect_close(memory.values(op.dq_weight), memory.values(plain.dq_weight), sums, Dtype::f32);
  expect_close(memory.values(op.dk_weight), memory.values(plain.dk_weight), sums, Dtype::f32);
}

TEST(JoinHeadsKernel, TakesAndGivesEveryType) {
  for (const HeadShape& s :
       {HeadShape{3, 4, 2, 64, 2, 64}, HeadShape{3, 2, 1, 96, 1, 24}, HeadShape{3, 2, 1, 5, 1, 2},
        normed({5, 4, 2, 32, 4, 16}), normed({3, 2, 1, 80, 1, 40})}) {
    check_types(s, Dtype::f32, Dtype::bf16);
    check_types(s, Dtype::bf16, Dtype::bf16);
    check_types(s, Dtype::bf16, Dtype::f32);
  }
}

TEST(JoinHeadsKernel, SumsWeightGradientsOfManyRows) {
  HeadShape s{2100, 1, 1, 2, 1, 2};
  s.normed = true;
  Split split(s);
  JoinHeads op = join_of(split, s);
  op.qkv = split.op.qkv, op.q_weight = split.op.q_weight, op.k_weight = split.op.k_weight;
  op.dq_weight = split.memory.write(Dtype::f32, s.size);
  op.dk_weight = split.memory.accumulate(Dtype::f32, s.size);
  const auto before = split.memory.values(op.dk_weight);
  split.memory.run(op, kRank);
  const auto x = split.memory.values(op.qkv);
  const auto dq = split.memory.values(op.dq), dkv = split.memory.values(op.dkv);
  std::vector<double> dq_weight(2, 0.0), dk_weight = before;
  for (std::size_t row = 0; row < 2100; ++row) {
    const auto normal = [&](std::size_t at, std::size_t i) {
      return x[at + i] / std::sqrt((x[at] * x[at] + x[at + 1] * x[at + 1]) / 2 + op.epsilon);
    };
    const auto turned_back = [&](const std::vector<double>& heads, std::size_t at) {
      std::vector<double> head{heads[at], heads[at + 1]};
      turn(head, op.rotary, -static_cast<std::int64_t>(row));
      return head;
    };
    for (std::size_t i = 0; i < 2; ++i) {
      dq_weight[i] += turned_back(dq, row * 2)[i] * normal(row * 6, i);
      dk_weight[i] += turned_back(dkv, row * 4)[i] * normal(row * 6 + 2, i);
    }
  }
  // Terms are at most root 2 and err by some units. They are added in parts, so that none passes
  // through more than 320 additions.
  const double error = 2100 * std::sqrt(2.0) * (8 + 320) * kUnit;
  expect_close(split.memory.values(op.dq_weight), dq_weight, error, Dtype::f32);
  expect_close(split.memory.values(op.dk_weight), dk_weight, error, Dtype::f32);
}

}  // namespace
}  // namespace fpdt
