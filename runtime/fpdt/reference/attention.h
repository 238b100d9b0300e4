// Causal attention within documents (Vaswani et al., arXiv 1706.03762), heads grouped over KV heads
// (Ainslie et al., arXiv 2305.13245): token t attends to u when documents[t] <= u <= t, where
// documents[t] is the first token of t's document, and among the last `window` tokens if there is
// one (Beltagy et al., arXiv 2004.05150); query head j uses KV head j / (H/G); scores are scaled by
// 1/sqrt(D) or as the layout says, and capped softly if it says so (Gemma 2, arXiv 2408.00118).
#pragma once

#include "fpdt/reference/matrix.h"

namespace fpdt::reference {

// Columns of the fused projection [S, (H+2G)*D]: all query heads, all key heads, all value heads.
struct HeadLayout {
  std::size_t heads = 0, kv_heads = 0, head_dim = 0;  // H, G, D
  double scale = 0;                                   // of scores; 0: 1 / sqrt(D)
  double cap = 0;                                     // of scaled scores, c tanh(s / c); 0: none

  [[nodiscard]] std::size_t width() const { return (heads + 2 * kv_heads) * head_dim; }
  // First column of query head j, and of the key and value heads that it uses.
  [[nodiscard]] std::size_t query(std::size_t j) const { return j * head_dim; }
  [[nodiscard]] std::size_t key(std::size_t j) const {
    return (heads + j / (heads / kv_heads)) * head_dim;
  }
  [[nodiscard]] std::size_t value(std::size_t j) const { return key(j) + kv_heads * head_dim; }
};

// What a query sees besides keys: the last `window` tokens, 0: all; and, of each head, a sink of
// this score, whose value is 0 (gpt-oss, arXiv 2508.10925); empty: none.
struct Sight {
  std::int64_t window = 0;
  Matrix sinks{};  // [H]
};

// Returns the output of all heads side by side, [S, H*D].
Matrix attention(const Matrix& qkv, const std::vector<std::int32_t>& documents, HeadLayout layout,
                 const Sight& sight = {});

struct AttentionGradients {
  Matrix qkv, sinks;
};
// Given the gradient of that output.
AttentionGradients attention_backward(const Matrix& qkv, const std::vector<std::int32_t>& documents,
                                      HeadLayout layout, const Matrix& dout,
                                      const Sight& sight = {});

}  // namespace fpdt::reference
