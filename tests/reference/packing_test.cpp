// Documents of one sample do not see each other: packed or alone they give the same results.
#include <cmath>

#include <gtest/gtest.h>

#include "models.h"

namespace fpdt::reference {
namespace {

// The same operations, added in another order: a few units of roundoff on sums of about 10.
constexpr double kPackingTolerance = 1e-13;

Sample part(const Sample& packed, std::size_t first, std::size_t last) {
  Sample alone;
  for (std::size_t t = first; t < last; ++t) {
    alone.tokens.push_back(packed.tokens[t]);
    alone.labels.push_back(packed.labels[t]);
    alone.documents.push_back(0);
  }
  return alone;
}

void expect_independent_documents(const ModelSpec& model) {
  const Parameters parameters = random_parameters(model, 5);
  const Sample packed = random_sample(model, {4, 7}, 2);
  const Step together = loss_and_gradients(model, parameters, {packed}, 0.25);
  const Step apart =
      loss_and_gradients(model, parameters, {part(packed, 0, 4), part(packed, 4, 11)}, 0.25);
  EXPECT_NEAR(together.loss, apart.loss, kPackingTolerance);
  for (const auto& [name, values] : together.gradients.tensors) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(values[i], apart.gradients.tensors.at(name)[i], kPackingTolerance) << name;
    }
  }
}

TEST(Packing, EqualsSeparateSamplesWithRotary) { expect_independent_documents(llama_model()); }

TEST(Packing, EqualsSeparateSamplesWithLearnedPositions) {
  expect_independent_documents(gpt_model(ActivationFamily::gelu_tanh));
}

TEST(Packing, LaterTokensDoNotChangeEarlierLogits) {
  const ModelSpec model = llama_model();
  const Parameters parameters = random_parameters(model, 5);
  Sample sample = random_sample(model, {6}, 2);
  const Matrix before = logits(model, parameters, sample);
  sample.tokens[4] = (sample.tokens[4] + 1) % 17;
  const Matrix after = logits(model, parameters, sample);
  for (std::size_t i = 0; i < 4 * 17; ++i) EXPECT_EQ(before[i], after[i]);
  EXPECT_NE(before[4 * 17], after[4 * 17]);
  EXPECT_NE(before[5 * 17], after[5 * 17]);
}

}  // namespace
}  // namespace fpdt::reference
