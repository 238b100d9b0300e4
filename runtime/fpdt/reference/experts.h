// A feed-forward of experts (Shazeer et al., arXiv 1701.06538; Jiang et al., arXiv 2401.04088,
// section 2.1): a token takes the k experts with the largest router logits, the first where they
// are equal. It adds up their outputs, weighted by the softmax over all logits, divided by the sum
// over those taken if they are normalised.
#pragma once

#include "fpdt/reference/matrix.h"
#include "fpdt/spec/model.h"

namespace fpdt::reference {

// router [X, E], up [X, up_width, E], down [X, E, F].
struct ExpertWeights {
  const Matrix &router, &up, &down;
};

// n [S, E]; returns [S, E].
Matrix experts(const ModelSpec& model, const Matrix& n, const ExpertWeights& weights);

struct ExpertGradients {
  Matrix n, router, up, down;
};
ExpertGradients experts_backward(const ModelSpec& model, const Matrix& n,
                                 const ExpertWeights& weights, const Matrix& dy);

}  // namespace fpdt::reference
