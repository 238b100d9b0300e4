// RMSNorm of every query and key head by itself, before the rotary embedding (Henry et al., arXiv
// 2010.04245, as Qwen3 has it): two weights of the head size, one for all query heads, one for all
// key heads.
#pragma once

#include "fpdt/reference/attention.h"
#include "fpdt/reference/matrix.h"

namespace fpdt::reference {

struct HeadNormWeights {
  const Matrix& q;  // [D]
  const Matrix& k;  // [D]
  double epsilon;
};

// qkv [S, (H+2G)*D] with its query and key heads normalised; value heads are unchanged.
Matrix head_norm(const Matrix& qkv, HeadLayout layout, const HeadNormWeights& weights);

struct HeadNormGradients {
  Matrix qkv;  // [S, (H+2G)*D]
  Matrix q;    // [D]
  Matrix k;    // [D]
};
HeadNormGradients head_norm_backward(const Matrix& qkv, HeadLayout layout,
                                     const HeadNormWeights& weights, const Matrix& dy);

}  // namespace fpdt::reference
