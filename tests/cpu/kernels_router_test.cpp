// The router of experts: choices, weights, balance and gradients, against plain loops.
#include <algorithm>
#include <cmath>
#include <limits>

#include "experts_case.h"

namespace fpdt {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A softmax in double: of a row's logits.
std::vector<double> softmax(const std::vector<double>& logits, std::int64_t row,
                            std::int64_t experts) {
  std::vector<double> p(logits.begin() + row * experts, logits.begin() + (row + 1) * experts);
  const double most = *std::max_element(p.begin(), p.end());
  double sum = 0;
  for (double& value : p) sum += value = std::exp(value - most);
  for (double& value : p) value /= sum;
  return p;
}

std::vector<double> sigmoids(const std::vector<double>& logits, std::int64_t row,
                             std::int64_t experts) {
  std::vector<double> p(logits.begin() + row * experts, logits.begin() + (row + 1) * experts);
  for (double& value : p) value = 1 / (1 + std::exp(-value));
  return p;
}

// Whether a softmax of the row is a number.
bool is_sound(const std::vector<double>& logits, std::int64_t row, std::int64_t experts) {
  bool finite = false;
  for (std::int64_t e = 0; e < experts; ++e) {
    const double logit = logits[index(row * experts + e)];
    if (std::isnan(logit) || logit == kInfinity) return false;
    finite = finite || std::isfinite(logit);
  }
  return finite;
}

// A scale of weights, which only some have.
double scale_of(bool sigmoid) { return sigmoid ? 2.5 : 1; }

// Relative error of a weight: of e^x, x in [-36, 0], in the numerator and in the sum, 36 units from
// the rounding of x and 4 from the function; `experts` additions; a division. Normalising adds
// `active` weights of this error and divides. The scale is one more product.
double error_of_weight(const Layer& layer) {
  const double probability = 2 * (36 + 4) + static_cast<double>(layer.experts) + 1;
  return (2 * probability + static_cast<double>(layer.active) + 2) * kUnit;
}

void check_route(const Layer& layer, const std::vector<double>& numbers, bool normalised,
                 bool sigmoid = false) {
  SCOPED_TRACE(testing::Message() << layer << ", normalised " << normalised << ", sigmoid "
                                  << sigmoid);
  KernelCase memory;
  Route op;
  layer.set(op), op.normalised = normalised, op.sigmoid = sigmoid;
  op.scale = scale_of(sigmoid);
  op.logits = memory.put(Dtype::f32, numbers);
  if (sigmoid) op.bias = memory.put_random(Dtype::bf16, layer.experts);
  op.routes = memory.write(Dtype::i32, 2 * layer.pairs() + layer.experts);
  op.weights = memory.write(Dtype::f32, layer.pairs());
  memory.run(op);
  const auto logits = memory.values(op.logits);
  std::vector<double> keys = logits;
  if (sigmoid) {
    const auto bias = memory.values(op.bias);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      keys[i] = 1 / (1 + std::exp(-keys[i])) + bias[i % bias.size()];
    }
  }
  const Choices choices(layer, keys);
  EXPECT_EQ(memory.values(op.routes), choices.integers());

  const auto weights = memory.values(op.weights);
  std::vector<double> got;
  std::vector<Expected> expected;
  for (std::int64_t row = 0; row < layer.rows; ++row) {
    const auto p =
        sigmoid ? sigmoids(logits, row, layer.experts) : softmax(logits, row, layer.experts);
    double mass = 0;
    for (std::int64_t j = 0; j < layer.active; ++j) {
      mass += p[index(choices.expert_of_entry[index(row * layer.active + j)])];
    }
    for (std::int64_t j = row * layer.active; j < (row + 1) * layer.active; ++j) {
      if (!is_sound(logits, row, layer.experts)) {
        EXPECT_TRUE(std::isnan(weights[index(j)])) << "row " << row;
        continue;
      }
      const double w =
          op.scale * p[index(choices.expert_of_entry[index(j)])] / (normalised ? mass : 1);
      got.push_back(weights[index(j)]);
      expected.push_back({w, error_of_weight(layer) * w});
    }
  }
  expect_close(got, expected, Dtype::f32);
}

TEST(RouteKernel, ChoosesTheLargest) {
  for (const bool normalised : {false, true}) {
    for (const Layer layer :
         {Layer{1, 1, 1}, Layer{9, 8, 1}, Layer{150, 8, 2}, Layer{7, 5, 5}, Layer{37, 65, 8},
          Layer{33, 128, 8}, Layer{3, 300, 64}, Layer{2, 1024, 7}}) {
      for (const Spread spread : {Spread::even, Spread::together}) {
        KernelCase memory(static_cast<std::uint32_t>(layer.experts));
        check_route(layer, logits_of(memory, layer, spread), normalised);
      }
      KernelCase memory(static_cast<std::uint32_t>(layer.experts));
      check_route(layer, memory.random(layer.rows * layer.experts), normalised, true);
    }
  }
}

// More entries than a block sorts at a time.
TEST(RouteKernel, SortsManyRows) {
  KernelCase memory;
  const Layer layer{1500, 6, 2};
  check_route(layer, logits_of(memory, layer, Spread::even), true);
  check_route({1025, 2, 1}, memory.random(2050), false);
}

TEST(RouteKernel, BreaksTiesInOrderOfTheExperts) {
  for (const std::int64_t experts : {7, 40, 100}) {
    const Layer layer{12, experts, 4};
    std::vector<double> logits;
    for (std::int64_t i = 0; i < layer.rows * experts; ++i) {
      // Three values, and zeros of both signs, which are equal.
      logits.push_back(static_cast<double>(i * i % 3 - 1) * (i % 2 == 0 ? 1.0 : -1.0));
    }
    check_route(layer, logits, true);
    check_route(layer, std::vector<double>(logits.size(), -0.5), false);
  }
}

TEST(RouteKernel, KeepsRoutesInRangeWhateverTheLogitsAre) {
  const double nan = std::nan("");
  for (const std::int64_t experts : {5, 70}) {
    for (const std::int64_t active : {1, 3, 5}) {
      const Layer layer{9, experts, active};
      KernelCase memory;
      std::vector<double> logits = logits_of(memory, layer, Spread::even);
      const auto at = [&](std::int64_t row, std::int64_t expert) -> double& {
        return logits[index(row * experts + expert)];
      };
      for (std::int64_t e = 0; e < experts; ++e) {
        at(1, e) = nan;
        at(2, e) = -kInfinity;
        at(3, e) = kInfinity;
        if (e != 2) at(4, e) = -kInfinity;
        if (e > 0) at(5, e) = e % 2 == 0 ? nan : -kInfinity;
      }
      at(6, 3) = nan;
      at(7, 1) = kInfinity;
      at(7, 4) = kInfinity;
      at(8, 0) = -kInfinity;
      check_route(layer, logits, true);
      check_route(layer, logits, false);
    }
  }
}

struct RouterGradient {
  Layer layer;
  Spread spread = Spread::even;
  Dtype dtype = Dtype::f32;
  bool normalised = true, accumulate = false, poisoned = false, sigmoid = false;
};

void check_route_gradient(const RouterGradient& s) {
  const Layer& layer = s.layer;
  SCOPED_TRACE(testing::Message() << layer << ", normalised " << s.normalised << ", sigmoid "
                                  << s.sigmoid);
  KernelCase memory;
  RouteBackward op;
  layer.set(op), op.normalised = s.normalised, op.sigmoid = s.sigmoid;
  op.scale = scale_of(s.sigmoid);
  auto logits = logits_of(memory, layer, s.spread);
  if (s.poisoned) logits[index(layer.experts)] = std::nan("");
  const Choices choices(layer, logits);
  op.logits = memory.put(Dtype::f32, logits);
  op.routes = memory.put(Dtype::i32, choices.integers());
  op.dweights = memory.put_random(Dtype::f32, layer.pairs());
  const std::int64_t count = layer.rows * layer.experts;
  op.dlogits = s.accumulate ? memory.accumulate(s.dtype, count) : memory.write(s.dtype, count);
  const auto before = memory.values(op.dlogits), dweights = memory.values(op.dweights);
  memory.run(op);

  // Its terms have the error of weights, and `active` more units from their sum.
  const double error = 2 * error_of_weight(layer) + static_cast<double>(layer.active + 4) * kUnit;
  const auto dlogits = memory.values(op.dlogits);
  std::vector<double> got;
  std::vector<Expected> expected;
  for (std::int64_t row = 0; row < layer.rows; ++row) {
    const auto p =
        s.sigmoid ? sigmoids(logits, row, layer.experts) : softmax(logits, row, layer.experts);
    std::vector<double> dw(p.size());
    std::vector<bool> chosen(p.size());
    double mass = 0, mean = 0, magnitude = 0;
    for (std::int64_t j = row * layer.active; j < (row + 1) * layer.active; ++j) {
      const auto e = index(choices.expert_of_entry[index(j)]);
      chosen[e] = true, dw[e] = op.scale * dweights[index(j)];
      mass += p[e], mean += p[e] * dw[e], magnitude += p[e] * std::abs(dw[e]);
    }
    if (!s.normalised) mass = 1;
    if (!s.normalised && s.sigmoid) mean = 0;
    for (std::size_t e = 0; e < p.size(); ++e) {
      const std::size_t at = index(row * layer.experts) + e;
      if (s.poisoned && row == 1) {
        EXPECT_TRUE(!chosen[e] || std::isnan(dlogits[at])) << e;
        continue;
      }
      const bool counts = chosen[e] || (!s.normalised && !s.sigmoid);
      const double slope = s.sigmoid ? 1 - p[e] : 1;
      Expected one;
      if (counts) one.value = slope * p[e] / mass * (dw[e] - mean / mass);
      if (counts) one.error = error * p[e] / mass * (std::abs(dw[e]) + magnitude / mass);
      if (s.accumulate) one.value += before[at], one.error += kUnit * std::abs(one.value);
      got.push_back(dlogits[at]), expected.push_back(one);
    }
  }
  expect_close(got, expected, s.dtype);
}

// Labels of which every third masks its row.
std::vector<double> labels_of(std::int64_t rows) {
  std::vector<double> labels;
  for (std::int64_t row = 0; row < rows; ++row) {
    labels.push_back(row % 3 == 1 ? -1 : static_cast<double>(row));
  }
  return labels;
}

double log_sum(const std::vector<double>& logits, std::int64_t row, std::int64_t experts) {
  double sum = 0;
  for (std::int64_t e = 0; e < experts; ++e) sum += std::exp(logits[index(row * experts + e)]);
  return std::log(sum);
}

// Loads and chances of a layer, by loops. Squares of log sums stand behind the chances.
struct Sums {
  std::vector<double> loads, chances;
  Sums(const Layer& layer, const std::vector<double>& logits, const std::vector<double>& labels)
      : loads(index(layer.experts)), chances(loads.size() + 1) {
    const Choices choices(layer, logits);
    for (std::int64_t row = 0; row < layer.rows; ++row) {
      if (labels[index(row)] < 0) continue;
      const auto p = softmax(logits, row, layer.experts);
      for (std::size_t e = 0; e < p.size(); ++e) chances[e] += p[e];
      chances.back() += std::pow(log_sum(logits, row, layer.experts), 2);
      for (std::int64_t j = row * layer.active; j < (row + 1) * layer.active; ++j) {
        loads[index(choices.expert_of_entry[index(j)])] += 1;
      }
    }
  }
};

const std::vector<Layer> kBalanced{{1, 1, 1},    {9, 8, 1},    {150, 8, 2}, {37, 65, 8},
                                   {33, 128, 8}, {3, 300, 64}, {4, 1024, 7}};

TEST(ExpertLoadsKernel, CountsTheRowsThatHaveLabels) {
  for (const Layer& layer : kBalanced) {
    for (const bool accumulate : {false, true}) {
      SCOPED_TRACE(testing::Message() << layer << ", accumulate " << accumulate);
      KernelCase memory;
      const auto logits = logits_of(memory, layer, Spread::even);
      const auto labels = labels_of(layer.rows);
      ExpertLoads op;
      layer.set(op);
      op.logits = memory.put(Dtype::f32, logits);
      op.routes = memory.put(Dtype::i32, Choices(layer, logits).integers());
      op.labels = memory.put(Dtype::i32, labels);
      for (const auto& [target, count] :
           {std::pair(&op.loads, layer.experts), {&op.chances, layer.experts + 1}}) {
        *target =
            accumulate ? memory.accumulate(Dtype::f32, count) : memory.write(Dtype::f32, count);
      }
      const auto loads = memory.values(op.loads), chances = memory.values(op.chances);
      memory.run(op);
      const Sums sums(layer, logits, labels);
      std::vector<Expected> expected_loads, expected_chances;
      for (std::size_t e = 0; e < sums.loads.size(); ++e) {
        const double error = static_cast<double>(layer.rows + 2) * kUnit;
        expected_loads.push_back({sums.loads[e] + (accumulate ? loads[e] : 0),
                                  accumulate ? 2 * kUnit * (sums.loads[e] + 1) : 0});
        expected_chances.push_back({sums.chances[e] + (accumulate ? chances[e] : 0),
                                    (error + error_of_weight(layer)) * (sums.chances[e] + 1)});
      }
      // Of log sums up to about 40, whose absolute error is that of their exponentials.
      const double squares = sums.chances.back(), rows = static_cast<double>(layer.rows);
      const double error = (rows + 2) * kUnit + error_of_weight(layer);
      expected_chances.push_back(
          {squares + (accumulate ? chances.back() : 0), error * (squares + 80 * rows + 1)});
      expect_close(memory.values(op.loads), expected_loads, Dtype::f32);
      expect_close(memory.values(op.chances), expected_chances, Dtype::f32);
    }
  }
}

TEST(BalanceLossKernel, IsTheProductOfSharesAndZeroWithoutRows) {
  for (const Layer& layer : kBalanced) {
    for (const bool any : {true, false}) {
      SCOPED_TRACE(testing::Message() << layer);
      KernelCase memory;
      BalanceLoss op;
      op.experts = layer.experts, op.active = layer.active, op.balance = 3, op.z = 2;
      std::vector<double> loads;
      for (std::int64_t e = 0; e < layer.experts; ++e) {
        loads.push_back(any ? static_cast<double>(e % 7 + 1) : 0);
      }
      op.loads = memory.put(Dtype::f32, loads);
      op.chances = memory.put_random(Dtype::f32, layer.experts + 1);
      op.loss = memory.accumulate(Dtype::f32, 1);
      const double before = memory.values(op.loss)[0];
      const auto chances = memory.values(op.chances);
      memory.run(op);
      double rows = 0, sum = 0, magnitude = 0;
      for (std::size_t e = 0; e < loads.size(); ++e) {
        rows += loads[e] / static_cast<double>(layer.active);
        sum += loads[e] * chances[e], magnitude += loads[e] * std::abs(chances[e]);
      }
      const double term = any ? 3 * sum / rows / rows + 2 * chances.back() / rows : 0;
      const double error =
          any ? 3 * magnitude / rows / rows + 2 * std::abs(chances.back()) / rows : 0;
      expect_close(memory.values(op.loss),
                   {{before + term,
                     static_cast<double>(layer.experts + 8) * kUnit * (error + std::abs(before))}},
                   Dtype::f32);
    }
  }
}

// With weights that have no gradient, that of the balance alone.
TEST(RouteBackwardKernel, HasTheGradientOfTheBalance) {
  for (const Layer& layer : kBalanced) {
    for (const bool normalised : {false, true}) {
      SCOPED_TRACE(testing::Message() << layer << ", normalised " << normalised);
      KernelCase memory;
      const auto logits = logits_of(memory, layer, Spread::even);
      const auto labels = labels_of(layer.rows);
      const Sums sums(layer, logits, labels);
      RouteBackward op;
      layer.set(op), op.normalised = normalised, op.balance = 5, op.z = 3;
      op.logits = memory.put(Dtype::f32, logits);
      op.routes = memory.put(Dtype::i32, Choices(layer, logits).integers());
      op.dweights = memory.put(Dtype::f32, std::vector<double>(index(layer.pairs()), 0.0));
      op.labels = memory.put(Dtype::i32, labels);
      op.loads = memory.put(Dtype::f32, sums.loads);
      op.dlogits = memory.write(Dtype::f32, layer.rows * layer.experts);
      memory.run(op);
      double sequence = 0;
      for (const double load : sums.loads) sequence += load / static_cast<double>(layer.active);
      std::vector<Expected> expected;
      for (std::int64_t row = 0; row < layer.rows; ++row) {
        const auto p = softmax(logits, row, layer.experts);
        const double square = 2 * 3 * log_sum(logits, row, layer.experts) / 5;
        double mean = 0;
        for (std::size_t e = 0; e < p.size(); ++e) mean += p[e] * sums.loads[e] / sequence;
        for (std::size_t e = 0; e < p.size(); ++e) {
          const bool counts = labels[index(row)] >= 0;
          const double share = sums.loads[e] / sequence;
          const double factor = counts ? 5 / sequence * p[e] : 0;
          expected.push_back(
              {factor * (share - mean + square),
               4 * error_of_weight(layer) * factor * (share + mean + std::abs(square) + 1)});
        }
      }
      expect_close(memory.values(op.dlogits), expected, Dtype::f32);
    }
  }
}

TEST(RouteBackwardKernel, IsTheGradientOfTheWeights) {
  for (const bool normalised : {false, true}) {
    for (const Layer layer :
         {Layer{1, 1, 1}, Layer{9, 8, 1}, Layer{19, 8, 2}, Layer{7, 5, 5}, Layer{12, 65, 8},
          Layer{33, 128, 8}, Layer{3, 300, 64}, Layer{2, 1024, 7}}) {
      check_route_gradient({layer, Spread::even, Dtype::f32, normalised});
      check_route_gradient({layer, Spread::together, Dtype::bf16, normalised});
      check_route_gradient({layer, Spread::even, Dtype::f32, normalised, true});
      check_route_gradient({layer, Spread::even, Dtype::f32, normalised, false, false, true});
      check_route_gradient({layer, Spread::together, Dtype::bf16, normalised, true, false, true});
    }
    check_route_gradient({{9, 8, 2}, Spread::even, Dtype::bf16, normalised, true});
    check_route_gradient({{9, 8, 2}, Spread::even, Dtype::f32, normalised, false, true});
  }
}

}  // namespace
}  // namespace fpdt
