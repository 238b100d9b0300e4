// The whole model: loss and the gradient of every parameter.
#pragma once

#include <cstdint>
#include <vector>

#include "fpdt/reference/matrix.h"
#include "fpdt/reference/parameters.h"
#include "fpdt/spec/model.h"

namespace fpdt::reference {

// One sequence. The three rows have the same length.
struct Sample {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> labels;     // negative: masked
  std::vector<std::int32_t> documents;  // [t]: the first token of t's document, <= t
};

struct Step {
  double loss = 0;  // scale * sum over unmasked labels of -log p
  Parameters gradients;
};

// Returns sums over the samples. Samples and parameters must fit the model (asserted).
Step loss_and_gradients(const ModelSpec& model, const Parameters& parameters,
                        const std::vector<Sample>& samples, double scale);
double loss(const ModelSpec& model, const Parameters& parameters,
            const std::vector<Sample>& samples, double scale);

// Returns the logits, [S, V].
Matrix logits(const ModelSpec& model, const Parameters& parameters, const Sample& sample);

}  // namespace fpdt::reference
