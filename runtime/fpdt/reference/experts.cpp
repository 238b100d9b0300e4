// Experts token by token.
#include "fpdt/reference/experts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "fpdt/reference/activation.h"
#include "fpdt/reference/linear.h"

namespace fpdt::reference {
namespace {

Matrix part(const Matrix& all, std::size_t index, std::size_t size) {
  const auto first = all.begin() + static_cast<std::ptrdiff_t>(index * size);
  return {first, first + static_cast<std::ptrdiff_t>(size)};
}

void add_part(Matrix& all, std::size_t index, const Matrix& values) {
  for (std::size_t i = 0; i < values.size(); ++i) all[index * values.size() + i] += values[i];
}

// What one token has taken.
struct Choice {
  Matrix p;                         // [X], softmax of all logits, or their sigmoids
  double log_sum = 0;               // log sum exp(logits)
  std::vector<std::size_t> chosen;  // [k]
  Matrix weights;                   // [k]
};

Matrix softmax(const Matrix& logits) {
  Matrix p;
  const double most = *std::max_element(logits.begin(), logits.end());
  for (const double logit : logits) p.push_back(std::exp(logit - most));
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& value : p) value /= sum;
  return p;
}

Choice choose(const ModelSpec& model, const Matrix& row, const ExpertWeights& weights) {
  Choice choice;
  const Matrix logits = linear(row, weights.router, weights.router_bias, row.size());
  Matrix keys = logits;
  if (model.sigmoid_router) {
    for (const double logit : logits) choice.p.push_back(1 / (1 + std::exp(-logit)));
    keys = choice.p;
    add_to(keys, weights.selection_bias);
  } else {
    choice.p = softmax(logits);
    const auto largest = std::max_element(logits.begin(), logits.end()) - logits.begin();
    choice.log_sum = logits[size(largest)] - std::log(choice.p[size(largest)]);
  }
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return keys[a] > keys[b]; });
  order.resize(size(model.active_experts));
  choice.chosen = order;
  double taken = 0;
  for (const std::size_t e : order) taken += choice.p[e];
  for (const std::size_t e : order) {
    const double weight = model.normalised_experts ? choice.p[e] / taken : choice.p[e];
    choice.weights.push_back(model.expert_scale * weight);
  }
  return choice;
}

// One expert on one token.
struct Expert {
  Matrix up, down;  // its matrices
  Matrix up_bias, down_bias;
  Matrix hidden, act, out;
};

Expert run(const ModelSpec& model, const Matrix& n, const ExpertWeights& weights, std::size_t e) {
  Expert one;
  one.up = part(weights.up, e, size(model.up_width() * model.hidden));
  one.down = part(weights.down, e, size(model.hidden * model.feed_forward));
  if (!weights.up_bias.empty()) {
    one.up_bias = part(weights.up_bias, e, size(model.up_width()));
    one.down_bias = part(weights.down_bias, e, size(model.hidden));
  }
  one.hidden = linear(n, one.up, one.up_bias, size(model.hidden));
  one.act = activation(model.activation, one.hidden, size(model.feed_forward));
  one.out = linear(one.act, one.down, one.down_bias, size(model.feed_forward));
  return one;
}

}  // namespace

Matrix experts(const ModelSpec& model, const Matrix& n, const ExpertWeights& weights) {
  const std::size_t hidden = size(model.hidden);
  Matrix y(n.size());
  for (std::size_t t = 0; t < n.size() / hidden; ++t) {
    const Matrix row = part(n, t, hidden);
    const Choice choice = choose(model, row, weights);
    for (std::size_t j = 0; j < choice.chosen.size(); ++j) {
      const Matrix out = run(model, row, weights, choice.chosen[j]).out;
      for (std::size_t i = 0; i < hidden; ++i) y[t * hidden + i] += choice.weights[j] * out[i];
    }
  }
  return y;
}

// With w the weights of the chosen experts and dw_j = dy . out_j, the gradient of a logit is
//   w_e (dw_e - sum_j w_j dw_j)  of a chosen one, if weights are normalised, else
//   p_e ([e chosen] dw_e - sum_j p_j dw_j)  of any.
// Of sigmoids it is (1 - p_e) times the former, or p_e (1 - p_e) dw_e of a chosen one. A scale of
// weights is one of dw.
ExpertGradients experts_backward(const ModelSpec& model, const Matrix& n,
                                 const ExpertWeights& weights, const Matrix& dy,
                                 const Matrix& dbalance) {
  const std::size_t hidden = size(model.hidden);
  const auto like = [](const Matrix& of) { return Matrix(of.size()); };
  ExpertGradients d{like(n),
                    like(weights.router),
                    like(weights.up),
                    like(weights.down),
                    like(weights.router_bias),
                    like(weights.up_bias),
                    like(weights.down_bias)};
  for (std::size_t t = 0; t < n.size() / hidden; ++t) {
    const Matrix row = part(n, t, hidden);
    const Matrix g = part(dy, t, hidden);
    const Choice choice = choose(model, row, weights);
    Matrix dw(choice.p.size());
    double mean = 0;
    for (std::size_t j = 0; j < choice.chosen.size(); ++j) {
      const std::size_t e = choice.chosen[j];
      const Expert one = run(model, row, weights, e);
      Matrix dout = g;
      for (double& value : dout) value *= choice.weights[j];
      const LinearGradients down =
          linear_backward(one.act, one.down, dout, size(model.feed_forward));
      const LinearGradients up = linear_backward(
          row, one.up,
          activation_backward(model.activation, one.hidden, down.x, size(model.feed_forward)),
          hidden);
      add_part(d.down, e, down.weight);
      add_part(d.up, e, up.weight);
      if (!d.up_bias.empty()) {
        add_part(d.up_bias, e, up.bias);
        add_part(d.down_bias, e, down.bias);
      }
      add_part(d.n, t, up.x);
      const double dweight = std::inner_product(g.begin(), g.end(), one.out.begin(), 0.0);
      dw[e] = model.expert_scale * dweight;
      mean += choice.weights[j] * dweight;
    }
    Matrix dlogits(dw.size());
    if (model.normalised_experts) {
      for (std::size_t j = 0; j < choice.chosen.size(); ++j) {
        const std::size_t e = choice.chosen[j];
        dlogits[e] = choice.weights[j] / model.expert_scale * (dw[e] - mean);
      }
    } else if (model.sigmoid_router) {
      for (const std::size_t e : choice.chosen) dlogits[e] = choice.p[e] * dw[e];
    } else {
      for (std::size_t e = 0; e < dw.size(); ++e) dlogits[e] = choice.p[e] * (dw[e] - mean);
    }
    for (std::size_t e = 0; model.sigmoid_router && e < dw.size(); ++e) {
      dlogits[e] *= 1 - choice.p[e];
    }
    if (!dbalance.empty()) add_to(dlogits, part(dbalance, t, dlogits.size()));
    const LinearGradients router = linear_backward(row, weights.router, dlogits, hidden);
    add_to(d.router, router.weight);
    if (!d.router_bias.empty()) add_to(d.router_bias, router.bias);
    add_part(d.n, t, router.x);
  }
  return d;
}

void Balance::add(const Matrix& n, const ExpertWeights& weights) {
  const std::size_t hidden = size(model_.hidden);
  for (std::size_t t = 0; t < labels_.size(); ++t) {
    if (labels_[t] < 0) continue;
    const Choice choice = choose(model_, part(n, t, hidden), weights);
    for (const std::size_t e : choice.chosen) loads_[e] += 1;
    add_to(chances_, choice.p);
    squares_ += choice.log_sum * choice.log_sum;
  }
}

double Balance::tokens() const {
  return std::accumulate(loads_.begin(), loads_.end(), 0.0) /
         static_cast<double>(model_.active_experts);
}

double Balance::loss() const {
  const double n = tokens();
  if (!(n > 0)) return 0;
  const double asked = std::inner_product(loads_.begin(), loads_.end(), chances_.begin(), 0.0);
  return model_.balance_loss * static_cast<double>(model_.experts) * asked / n / n +
         model_.z_loss * squares_ / n;
}

Matrix Balance::gradient(const Matrix& n, const ExpertWeights& weights, double scale) const {
  const std::size_t hidden = size(model_.hidden), experts = loads_.size();
  Matrix all(labels_.size() * experts);
  for (std::size_t t = 0; t < labels_.size(); ++t) {
    if (labels_[t] < 0) continue;
    const Choice choice = choose(model_, part(n, t, hidden), weights);
    const double mean = std::inner_product(choice.p.begin(), choice.p.end(), loads_.begin(), 0.0);
    const double balance = model_.balance_loss * static_cast<double>(experts) / tokens() / tokens();
    const double square = 2 * model_.z_loss * choice.log_sum / tokens();
    for (std::size_t e = 0; e < experts; ++e) {
      all[t * experts + e] = scale * choice.p[e] * (balance * (loads_[e] - mean) + square);
    }
  }
  return all;
}

}  // namespace fpdt::reference
