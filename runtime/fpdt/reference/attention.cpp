// Causal attention with every score in memory, and its gradient.
#include "fpdt/reference/attention.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "fpdt/base/assert.h"

namespace fpdt::reference {
namespace {

double dot(const double* a, const double* b, std::size_t count) {
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

double scale(HeadLayout layout) {
  return layout.scale > 0 ? layout.scale : 1.0 / std::sqrt(static_cast<double>(layout.head_dim));
}

// scale * q_t . k_u, capped, for u in [first, t]; element u - first.
std::vector<double> scores(const Matrix& qkv, HeadLayout layout, std::size_t head, std::size_t t,
                           std::size_t first) {
  const double* q = &qkv[t * layout.width() + layout.query(head)];
  std::vector<double> all;
  for (std::size_t u = first; u <= t; ++u) {
    const double* k = &qkv[u * layout.width() + layout.key(head)];
    const double score = scale(layout) * dot(q, k, layout.head_dim);
    all.push_back(layout.cap > 0 ? layout.cap * std::tanh(score / layout.cap) : score);
  }
  return all;
}

// The derivative of a capped score by the score.
double slope(HeadLayout layout, double capped) {
  return layout.cap > 0 ? 1 - capped / layout.cap * (capped / layout.cap) : 1;
}

// Of the scores and, after them, of the head's sink if there is one.
std::vector<double> softmax(std::vector<double> p, const Sight& sight, std::size_t head) {
  if (!sight.sinks.empty()) p.push_back(sight.sinks[head]);
  const double maximum = *std::max_element(p.begin(), p.end());
  double sum = 0;
  for (double& value : p) {
    value = std::exp(value - maximum);
    sum += value;
  }
  for (double& value : p) value /= sum;
  return p;
}

// The first token that token t sees.
std::size_t first_seen(const std::vector<std::int32_t>& documents, std::size_t t,
                       std::int64_t window) {
  const std::size_t start = size(documents[t]);
  return window > 0 && t + 1 > size(window) ? std::max(start, t + 1 - size(window)) : start;
}

}  // namespace

Matrix attention(const Matrix& qkv, const std::vector<std::int32_t>& documents, HeadLayout layout,
                 const Sight& sight) {
  const std::size_t tokens = documents.size();
  FPDT_ASSERT(qkv.size() == tokens * layout.width());
  Matrix out(tokens * layout.heads * layout.head_dim);
  for (std::size_t t = 0; t < tokens; ++t) {
    const std::size_t first = first_seen(documents, t, sight.window);
    for (std::size_t head = 0; head < layout.heads; ++head) {
      const std::vector<double> p = softmax(scores(qkv, layout, head, t, first), sight, head);
      double* o = &out[(t * layout.heads + head) * layout.head_dim];
      for (std::size_t u = first; u <= t; ++u) {
        const double* v = &qkv[u * layout.width() + layout.value(head)];
        for (std::size_t i = 0; i < layout.head_dim; ++i) o[i] += p[u - first] * v[i];
      }
    }
  }
  return out;
}

// With p the probabilities of row t and dp_u = do . v_u:
//   ds_u = p_u (dp_u - sum_w p_w dp_w), by the slope of the cap
//   dq += scale ds_u k_u,  dk_u += scale ds_u q,  dv_u += p_u do
// The sink is a key with dp = 0, so its score has the gradient -p sum_w p_w dp_w.
AttentionGradients attention_backward(const Matrix& qkv, const std::vector<std::int32_t>& documents,
                                      HeadLayout layout, const Matrix& dout, const Sight& sight) {
  const std::size_t tokens = documents.size();
  const std::size_t dim = layout.head_dim;
  FPDT_ASSERT(dout.size() == tokens * layout.heads * dim);
  Matrix dqkv(qkv.size()), dsinks(sight.sinks.size());
  for (std::size_t t = 0; t < tokens; ++t) {
    const std::size_t first = first_seen(documents, t, sight.window);
    for (std::size_t head = 0; head < layout.heads; ++head) {
      const std::vector<double> s = scores(qkv, layout, head, t, first);
      const std::vector<double> p = softmax(s, sight, head);
      const double* d = &dout[(t * layout.heads + head) * dim];
      double mean_dp = 0;
      for (std::size_t u = first; u <= t; ++u) {
        mean_dp += p[u - first] * dot(d, &qkv[u * layout.width() + layout.value(head)], dim);
      }
      if (!dsinks.empty()) dsinks[head] -= p.back() * mean_dp;
      const std::size_t q = t * layout.width() + layout.query(head);
      for (std::size_t u = first; u <= t; ++u) {
        const std::size_t k = u * layout.width() + layout.key(head);
        const std::size_t v = u * layout.width() + layout.value(head);
        const double ds =
            p[u - first] * (dot(d, &qkv[v], dim) - mean_dp) * slope(layout, s[u - first]);
        for (std::size_t i = 0; i < dim; ++i) {
          dqkv[q + i] += scale(layout) * ds * qkv[k + i];
          dqkv[k + i] += scale(layout) * ds * qkv[q + i];
          dqkv[v + i] += p[u - first] * d[i];
        }
      }
    }
  }
  return {std::move(dqkv), std::move(dsinks)};
}

}  // namespace fpdt::reference
