// Cuts heads out as rows, normalises them, and puts them back.
#include "fpdt/reference/head_norm.h"

#include "fpdt/base/assert.h"
#include "fpdt/reference/norm.h"

namespace fpdt::reference {
namespace {

// A range of heads of every token.
struct Heads {
  std::size_t first, count;
};

// Calls move(element of the cut [S * count, D], element of qkv) for every element of the heads.
template <class Move>
void each_element(std::size_t tokens, HeadLayout layout, Heads heads, Move&& move) {
  const std::size_t width = heads.count * layout.head_dim;
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t i = 0; i < width; ++i) {
      move(t * width + i, t * layout.width() + heads.first * layout.head_dim + i);
    }
  }
}

Matrix cut(const Matrix& qkv, HeadLayout layout, Heads heads) {
  const std::size_t tokens = qkv.size() / layout.width();
  Matrix rows(tokens * heads.count * layout.head_dim);
  each_element(tokens, layout, heads,
               [&](std::size_t row, std::size_t at) { rows[row] = qkv[at]; });
  return rows;
}

void put(Matrix& qkv, HeadLayout layout, Heads heads, const Matrix& rows) {
  each_element(qkv.size() / layout.width(), layout, heads,
               [&](std::size_t row, std::size_t at) { qkv[at] = rows[row]; });
}

}  // namespace

Matrix head_norm(const Matrix& qkv, HeadLayout layout, const HeadNormWeights& weights) {
  const bool joint = weights.q.size() == layout.heads * layout.head_dim &&
                     weights.k.size() == layout.kv_heads * layout.head_dim;
  FPDT_ASSERT(joint ||
              (weights.q.size() == layout.head_dim && weights.k.size() == layout.head_dim));
  Matrix y = qkv;
  const Heads q{0, layout.heads};
  const Heads k{layout.heads, layout.kv_heads};
  const auto normed = [&](Heads heads, const Matrix& weight) {
    return norm(NormFamily::rms, weights.epsilon, cut(qkv, layout, heads), weight, {});
  };
  put(y, layout, q, normed(q, weights.q));
  put(y, layout, k, normed(k, weights.k));
  return y;
}

HeadNormGradients head_norm_backward(const Matrix& qkv, HeadLayout layout,
                                     const HeadNormWeights& weights, const Matrix& dy) {
  HeadNormGradients d{dy, {}, {}};
  const auto back = [&](Heads heads, const Matrix& weight) {
    const NormGradients part = norm_backward(
        NormFamily::rms, weights.epsilon, cut(qkv, layout, heads), weight, cut(dy, layout, heads));
    put(d.qkv, layout, heads, part.x);
    return part.weight;
  };
  d.q = back({0, layout.heads}, weights.q);
  d.k = back({layout.heads, layout.kv_heads}, weights.k);
  return d;
}

}  // namespace fpdt::reference
