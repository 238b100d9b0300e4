// RMSNorm of query and key heads before the rotary embedding. Of each head by itself (Henry et al.,
// arXiv 2010.04245, as Qwen3 has it), with two weights of the head size, one for all query heads,
// one for all key heads. Or joint, of all query heads together and of all key heads (OLMoE, arXiv
// 2409.02060), with weights of their widths.
#pragma once

#include "fpdt/reference/attention.h"
#include "fpdt/reference/matrix.h"

namespace fpdt::reference {

struct HeadNormWeights {
  const Matrix& q;  // [D], or [H*D] if joint
  const Matrix& k;  // [D], or [G*D]
  double epsilon;
};

// qkv [S, (H+2G)*D] with its query and key heads normalised; value heads are unchanged.
Matrix head_norm(const Matrix& qkv, HeadLayout layout, const HeadNormWeights& weights);

struct HeadNormGradients {
  Matrix qkv;  // [S, (H+2G)*D]
  Matrix q;    // as the weight
  Matrix k;
};
HeadNormGradients head_norm_backward(const Matrix& qkv, HeadLayout layout,
                                     const HeadNormWeights& weights, const Matrix& dy);

}  // namespace fpdt::reference
