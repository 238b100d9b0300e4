// Loss of models that the transformers library wrote, trained here: chunked, on several ranks, from
// the very files (tests/fixtures/hf/generate.py), against the loss that it computed in f32.
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "fpdt/io/file.h"
#include "fpdt/io/model_file.h"
#include "fpdt/train/checkpoint.h"

#include "cases.h"

namespace fpdt {
namespace {

class Transformers : public testing::TestWithParam<const char*> {};

TEST_P(Transformers, GiveTheSameLoss) {
  const std::string directory = std::string(FPDT_SOURCE_DIR) + "/tests/fixtures/hf/" + GetParam();
  const auto expected = nlohmann::json::parse(read_file(directory + "/expected.json", 10000));
  Sample sample;
  sample.tokens = expected["tokens"].get<std::vector<std::int32_t>>();
  sample.documents.assign(sample.tokens.size(), 0);
  sample.labels.assign(sample.tokens.begin() + 1, sample.tokens.end());
  sample.labels.push_back(-1);  // the library shifts labels and leaves out the last
  const auto tokens = static_cast<std::int64_t>(sample.tokens.size());
  const ModelSpec model = load_model(directory);
  // Logits are sums of at most 64 products of f32 numbers of order 1 in a handful of layers.
  constexpr double kTolerance = 2e-5;
  for (const std::int64_t ranks : {1, 2}) {
    for (const std::int64_t chunk : {tokens, tokens / 2, tokens / 6}) {
      Case one = make_case(model, ranks, tokens, chunk);
      Rig rig(one);
      load_weights(directory, rig.trainer);
      EXPECT_NEAR(rig.trainer.evaluate({sample}), expected["loss"].get<double>(), kTolerance);
      EXPECT_NEAR(rig.trainer.step({sample}, 0).loss, expected["loss"].get<double>(), kTolerance);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Transformers, testing::Values("llama", "gpt2", "gpt_neox"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace fpdt
