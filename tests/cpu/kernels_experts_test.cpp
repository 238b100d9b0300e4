// Rows on their way to experts and back, against plain loops.
#include <algorithm>

#include "experts_case.h"

namespace fpdt {
namespace {

// Rows of several layers, widths and types.
struct RowsCase {
  Layer layer;
  std::int64_t width;
  Dtype from = Dtype::f32, to = Dtype::f32;
  Spread spread = Spread::even;
};

std::ostream& operator<<(std::ostream& out, const RowsCase& s) {
  return out << s.layer << ", width " << s.width << ", " << word(s.from) << " to " << word(s.to);
}

const std::vector<RowsCase>& rows_cases() {
  static const std::vector<RowsCase> all = [] {
    std::vector<RowsCase> cases;
    for (const Dtype from : {Dtype::f32, Dtype::bf16}) {
      for (const Dtype to : {Dtype::f32, Dtype::bf16}) {
        cases.push_back({{1, 1, 1}, 1, from, to});
        cases.push_back({{19, 6, 2}, 37, from, to});
        cases.push_back({{5, 4, 4}, 152, from, to, Spread::together});
        cases.push_back({{6, 70, 3}, 1304, from, to});
      }
      cases.push_back({{3, 66, 33}, 24, from, from, Spread::together});
      cases.push_back({{4, 3, 2}, 2100, from, from});
    }
    return cases;
  }();
  return all;
}

TEST(DispatchKernel, CopiesRowsToTheirPairs) {
  for (const RowsCase& s : rows_cases()) {
    for (const bool accumulate : {false, true}) {
      SCOPED_TRACE(testing::Message() << s);
      ExpertsCase rows(s.layer, s.spread);
      Dispatch op;
      rows.set(op);
      op.width = s.width;
      op.x = rows.memory.put_random(s.from, s.layer.rows * s.width);
      op.y = rows.target(s.to, s.layer.pairs() * s.width, accumulate);
      const auto x = rows.memory.values(op.x), before = rows.memory.values(op.y);
      rows.memory.run(op);
      std::vector<double> y;
      for (std::int64_t i = 0; i < s.layer.pairs() * s.width; ++i) {
        const std::int64_t row = rows.choices.entry_of_pair[index(i / s.width)] / s.layer.active;
        y.push_back(x[index(row * s.width + i % s.width)]);
        if (accumulate) y.back() += before[index(i)];
      }
      // A sum of two is at most 2, and is rounded to f32 before it is rounded to its type.
      expect_close(rows.memory.values(op.y), y, accumulate ? 2 * kUnit : 0, s.to);
    }
  }
}

void check_combine(const RowsCase& s, bool weighted, bool added, bool accumulate) {
  SCOPED_TRACE(testing::Message() << s << ", weighted " << weighted << ", added " << added
                                  << ", accumulate " << accumulate);
  ExpertsCase rows(s.layer, s.spread);
  Combine op;
  rows.set(op);
  op.width = s.width;
  op.x = rows.memory.put_random(s.from, s.layer.pairs() * s.width);
  if (weighted) op.weights = rows.memory.put_random(Dtype::f32, s.layer.pairs());
  if (added) op.addend = rows.memory.put_random(s.to, s.layer.rows * s.width);
  op.y = rows.target(s.to, s.layer.rows * s.width, accumulate);
  const auto x = rows.memory.values(op.x), before = rows.memory.values(op.y);
  std::vector<double> weights(index(s.layer.pairs()), 1.0), addend(before.size(), 0.0);
  if (weighted) weights = rows.memory.values(op.weights);
  if (added) addend = rows.memory.values(op.addend);
  rows.memory.run(op);
  std::vector<Expected> y;
  for (std::int64_t i = 0; i < s.layer.rows * s.width; ++i) {
    double sum = 0, magnitude = 0;
    const auto add = [&](double term) { sum += term, magnitude += std::abs(term); };
    for (std::int64_t j = 0; j < s.layer.active; ++j) {
      const std::int64_t entry = i / s.width * s.layer.active + j;
      const std::int64_t pair = rows.choices.pair_of_entry[index(entry)];
      add(weights[index(entry)] * x[index(pair * s.width + i % s.width)]);
    }
    add(addend[index(i)]);
    if (accumulate) add(before[index(i)]);
    y.push_back({sum, static_cast<double>(s.layer.active + 3) * kUnit * magnitude});
  }
  expect_close(rows.memory.values(op.y), y, s.to);
}

TEST(CombineKernel, AddsTheRowsOfThePairs) {
  for (const RowsCase& s : rows_cases()) {
    check_combine(s, true, true, false);
    check_combine(s, true, false, false);
    check_combine(s, false, false, true);
  }
  check_combine({{19, 6, 2}, 40, Dtype::bf16, Dtype::bf16}, true, true, true);
  check_combine({{19, 6, 2}, 40, Dtype::bf16, Dtype::bf16}, false, true, false);
}

TEST(CombineBackwardKernel, WeighsRowsAndMultipliesThem) {
  for (const RowsCase& s : rows_cases()) {
    for (const bool accumulate : {false, true}) {
      SCOPED_TRACE(testing::Message() << s << ", accumulate " << accumulate);
      ExpertsCase rows(s.layer, s.spread);
      KernelCase& memory = rows.memory;
      const std::int64_t count = s.layer.pairs() * s.width;
      CombineBackward op;
      rows.set(op);
      op.width = s.width;
      op.x = memory.accumulate(s.from, count);
      op.dx = memory.accumulate(s.to, count);
      op.weights = memory.put_random(Dtype::f32, s.layer.pairs());
      op.dweights = rows.target(Dtype::f32, s.layer.pairs(), accumulate);
      std::vector<double> terms(index(s.layer.rows * s.layer.experts), 0.0);
      if (accumulate) {
        op.terms = memory.put_random(Dtype::f32, s.layer.rows * s.layer.experts);
        terms = memory.values(op.terms);
      }
      const auto x = memory.values(op.x), dx = memory.values(op.dx);
      const auto weights = memory.values(op.weights);
      const auto old = memory.values(op.dweights);
      memory.run(op);
      std::vector<double> weighted_x, weighted_dx;
      std::vector<Expected> dweights(old.size());
      for (std::int64_t pair = 0; pair < s.layer.pairs(); ++pair) {
        const auto entry = index(rows.choices.entry_of_pair[index(pair)]);
        const std::int64_t row = rows.choices.entry_of_pair[index(pair)] / s.layer.active;
        const double term = terms[index(row * s.layer.experts + rows.choices.expert_of_pair(pair))];
        double sum = (accumulate ? old[entry] : 0) + term, magnitude = std::abs(sum) + 2;
        for (std::size_t i = index(pair * s.width); i < index((pair + 1) * s.width); ++i) {
          weighted_x.push_back(weights[entry] * x[i]);
          weighted_dx.push_back(weights[entry] * dx[i]);
          sum += x[i] * dx[i];
          magnitude += std::abs(x[i] * dx[i]);
        }
        dweights[entry] = {sum, static_cast<double>(s.width + 1) * kUnit * magnitude};
      }
      expect_close(memory.values(op.x), weighted_x, kUnit, s.from);
      expect_close(memory.values(op.dx), weighted_dx, kUnit, s.to);
      expect_close(memory.values(op.dweights), dweights, Dtype::f32);
    }
  }
}

// Ops of one slice after another do what one of all experts does, and leave the pairs of other
// experts alone: the same bits, but for sums over the choices of a row, whose order is another.
void check_slices(const RowsCase& s, std::int64_t each) {
  SCOPED_TRACE(testing::Message() << s << ", slices of " << each);
  ExpertsCase rows(s.layer, s.spread);
  KernelCase& memory = rows.memory;
  const std::int64_t pairs = s.layer.pairs(), count = pairs * s.width;
  Dispatch sent;
  rows.set(sent);
  sent.width = s.width;
  sent.x = memory.put_random(s.from, s.layer.rows * s.width);
  Activation act;
  act.rows = pairs, act.width = s.width;
  act.x = memory.put_random(s.from, 2 * count);
  ActivationBackward slope;
  slope.rows = pairs, slope.width = s.width;
  slope.x = act.x;
  slope.dy = memory.put_random(s.from, count);
  CombineBackward back;
  rows.set(back);
  back.width = s.width;
  const auto x = memory.random(count), dx = memory.random(count);
  back.weights = memory.put_random(Dtype::f32, pairs);
  back.terms = memory.put_random(Dtype::f32, s.layer.rows * s.layer.experts);
  Combine sum;
  rows.set(sum);
  sum.width = s.width;
  sum.x = memory.put_random(s.from, count);
  sum.weights = back.weights;
  const auto run_all = [&](bool adds) {
    sum.y.accumulate = back.dweights.accumulate = adds;
    memory.run(sent);
    memory.run(act);
    memory.run(slope);
    memory.run(back);
    memory.run(sum);
  };
  const auto renew = [&] {
    sent.y = memory.write(s.from, count);
    act.y = memory.write(s.from, count);
    slope.dx = memory.write(s.from, 2 * count);
    back.x = {memory.put(s.from, x), true};
    back.dx = {memory.put(s.from, dx), true};
    back.dweights = memory.write(Dtype::f32, pairs);
    sum.y = memory.write(Dtype::f32, s.layer.rows * s.width);
    return std::vector<Target>{sent.y, act.y, slope.dx, back.x, back.dx, back.dweights, sum.y};
  };
  const std::vector<Target> whole = renew();
  run_all(false);
  const std::vector<Target> sliced = renew();
  for (auto* const op : {&act.routes, &slope.routes}) *op = sent.routes;
  act.rows = slope.rows = s.layer.rows;
  act.experts = slope.experts = s.layer.experts;
  act.active = slope.active = s.layer.active;
  each_slice(s.layer, each, [&](const ExpertSlice& slice) {
    sent.slice = act.slice = slope.slice = back.slice = sum.slice = slice;
    run_all(slice.first > 0);
  });
  for (std::size_t i = 0; i + 1 < whole.size(); ++i) {
    EXPECT_EQ(memory.values(sliced[i]), memory.values(whole[i])) << "result " << i;
  }
  const auto terms = static_cast<double>(s.layer.active);
  expect_close(memory.values(sliced.back()), memory.values(whole.back()), 2 * terms * terms * kUnit,
               Dtype::f32);
}

TEST(ExpertSlices, AreTheWhole) {
  for (const RowsCase& s : rows_cases()) {
    if (s.from != s.to) continue;
    // Slices of one expert take long where there are many. The other type has slices of others.
    const bool many = s.layer.experts > 8, wide = s.from == Dtype::f32;
    const std::int64_t each = many ? (wide ? 33 : 9) : (wide ? 1 : 2);
    check_slices(s, std::min(each, s.layer.experts));
  }
}

}  // namespace
}  // namespace fpdt
