// A feed-forward of experts (Shazeer et al., arXiv 1701.06538; Jiang et al., arXiv 2401.04088,
// section 2.1): a token takes the k experts with the largest router logits, the first where they
// are equal. It adds up their outputs, weighted by the softmax over all logits, divided by the sum
// over those taken if they are normalised.
#pragma once

#include <cstdint>
#include <vector>

#include "fpdt/reference/matrix.h"
#include "fpdt/spec/model.h"

namespace fpdt::reference {

// router [X, E], up [X, up_width, E], down [X, E, F]; their biases, [X], [X, up_width] and [X, E],
// are empty in models without, and so is the bias [X] that a router of sigmoids chooses with.
struct ExpertWeights {
  const Matrix &router, &up, &down, &router_bias, &up_bias, &down_bias, &selection_bias;
};

// n [S, E]; returns [S, E].
Matrix experts(const ModelSpec& model, const Matrix& n, const ExpertWeights& weights);

struct ExpertGradients {
  Matrix n, router, up, down, router_bias, up_bias, down_bias;
};
// `dbalance` [S, X]: the gradient of BalanceLoss with respect to the logits; empty: none.
ExpertGradients experts_backward(const ModelSpec& model, const Matrix& n,
                                 const ExpertWeights& weights, const Matrix& dy,
                                 const Matrix& dbalance);

// The losses of the router over a sequence, times their factors: balance_loss X * sum over experts
// of (choices / n) * (sum of their softmax / n) (Fedus et al., arXiv 2101.03961, eq. 4, of k
// experts a token), and z_loss * (sum of (log sum exp(logits))^2) / n (Zoph et al., arXiv
// 2202.08906, eq. 5), over the n tokens with a label >= 0 of all layers together.
class Balance {
 public:
  Balance(const ModelSpec& model, const std::vector<std::int32_t>& labels)
      : model_(model), labels_(labels), loads_(size(model.experts)), chances_(loads_.size()) {}
  // A layer's input of the router [S, E].
  void add(const Matrix& n, const ExpertWeights& weights);
  [[nodiscard]] double loss() const;
  // Of a layer's logits [S, X], times `scale`.
  [[nodiscard]] Matrix gradient(const Matrix& n, const ExpertWeights& weights, double scale) const;

 private:
  [[nodiscard]] double tokens() const;

  const ModelSpec& model_;
  const std::vector<std::int32_t>& labels_;
  Matrix loads_, chances_;
  double squares_ = 0;
};

}  // namespace fpdt::reference
