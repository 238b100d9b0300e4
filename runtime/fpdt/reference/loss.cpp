// Cross-entropy over whole rows of logits, and its gradient.
#include "fpdt/reference/loss.h"

#include <algorithm>
#include <cmath>

#include "fpdt/base/assert.h"

namespace fpdt::reference {

CrossEntropy cross_entropy(const Matrix& logits, const std::vector<std::int32_t>& labels,
                           double scale) {
  const std::size_t words = logits.size() / labels.size();
  FPDT_ASSERT(words > 0 && logits.size() == labels.size() * words);
  CrossEntropy result{0, Matrix(logits.size())};
  for (std::size_t t = 0; t < labels.size(); ++t) {
    if (labels[t] < 0) continue;
    const double* row = &logits[t * words];
    const std::size_t label = size(labels[t]);
    FPDT_ASSERT(label < words);
    const double maximum = *std::max_element(row, row + words);
    double sum = 0;
    for (std::size_t w = 0; w < words; ++w) sum += std::exp(row[w] - maximum);
    result.loss += scale * (maximum + std::log(sum) - row[label]);
    for (std::size_t w = 0; w < words; ++w) {
      const double one_hot = w == label ? 1 : 0;
      result.dlogits[t * words + w] = scale * (std::exp(row[w] - maximum) / sum - one_hot);
    }
  }
  return result;
}

}  // namespace fpdt::reference
