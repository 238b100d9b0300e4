// Cross-entropy of the next token, a sum over unmasked rows: scale * sum of -log
// softmax(logits)[label].
#pragma once

#include "fpdt/reference/matrix.h"

namespace fpdt::reference {

struct CrossEntropy {
  double loss = 0;
  Matrix dlogits;  // [S, V]: scale * (softmax - one_hot(label)), 0 on masked rows
};

// logits [S, V]; a negative label is masked.
CrossEntropy cross_entropy(const Matrix& logits, const std::vector<std::int32_t>& labels,
                           double scale);

}  // namespace fpdt::reference
