// Loss and gradients of models that the transformers library wrote. They are trained here from the
// same files (tests/fixtures/hf/generate.py), chunked and on several ranks, and compared with the
// library's results in f32.
#include <cmath>
#include <filesystem>
#include <string>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "fpdt/io/file.h"
#include "fpdt/io/hf_model_writer.h"
#include "fpdt/io/hf_weights.h"
#include "fpdt/io/model_file.h"
#include "fpdt/train/checkpoint.h"

#include "cases.h"
#include "hf_families.h"

namespace fpdt {
namespace {

// Sums of at most 64 products of f32 numbers of order 1 in a handful of layers.
constexpr double kTolerance = 2e-5;

class Transformers : public testing::TestWithParam<const char*> {
 protected:
  Transformers() {
    sample.tokens = expected["tokens"].get<std::vector<std::int32_t>>();
    sample.documents.assign(sample.tokens.size(), 0);
    sample.labels.assign(sample.tokens.begin() + 1, sample.tokens.end());
    sample.labels.push_back(-1);  // the library shifts labels and skips the last
  }
  [[nodiscard]] std::int64_t tokens() const {
    return static_cast<std::int64_t>(sample.tokens.size());
  }

  std::string directory = std::string(FPDT_SOURCE_DIR) + "/tests/fixtures/hf/" + GetParam();
  nlohmann::json expected = nlohmann::json::parse(read_file(directory + "/expected.json", 100000));
  ModelSpec model = load_model(directory);
  Sample sample;
};

TEST_P(Transformers, GiveTheSameLoss) {
  for (const std::int64_t ranks : {1, 2}) {
    for (const std::int64_t chunk : {tokens(), tokens() / 2, tokens() / 6}) {
      Case one = make_case(model, ranks, tokens(), chunk);
      Rig rig(one);
      load_weights(directory, rig.trainer);
      // Evaluation knows no loss that balances experts.
      const double balance = expected.value("balance", 0.0);
      EXPECT_NEAR(rig.trainer.evaluate({sample}), expected["loss"].get<double>() - balance,
                  kTolerance);
      EXPECT_NEAR(rig.trainer.step({sample}, 0).loss, expected["loss"].get<double>(), kTolerance);
    }
  }
}

// Our gradients, written as a model of the library, have its names, shapes and values.
TEST_P(Transformers, GiveTheSameGradients) {
  Case one = make_case(model, 2, tokens(), tokens() / 3);
  Rig rig(one);
  load_weights(directory, rig.trainer);
  rig.trainer.step({sample}, 0);
  const std::filesystem::path home =
      testing::TempDir() + fmt::format("fpdt_gradients_{}_{}", GetParam(), getpid());
  std::filesystem::create_directories(home);
  HfModelWriter writer(home.string(), model, "F32");
  for (const TensorSpec& tensor : model_tensors(model)) {
    std::vector<float> gradient = rig.trainer.tensor(tensor.name, "gradient");
    // The writer takes weights, some of which it stores less one.
    for (float& value : gradient) value += hf_pieces(model, tensor.name).front().less;
    writer.write(gradient);
  }
  writer.commit();
  const SafetensorsFile ours((home / "model.safetensors").string());
  ASSERT_EQ(ours.entries().size(), expected["gradients"].size());
  for (const SafetensorsEntry& entry : ours.entries()) {
    ASSERT_TRUE(expected["gradients"].contains(entry.name)) << entry.name;
    const auto& theirs = expected["gradients"][entry.name];
    std::vector<float> values(static_cast<std::size_t>(entry.elements()));
    ours.read_f32(entry.name, 0, values);
    double squares = 0;
    for (const float value : values) squares += std::pow(static_cast<double>(value), 2);
    EXPECT_NEAR(std::sqrt(squares), theirs["norm"].get<double>(), kTolerance) << entry.name;
    for (std::size_t i = 0; i < 3; ++i) {
      const auto near = [&](const char* end, float value) {
        EXPECT_NEAR(static_cast<double>(value), theirs[end][i].get<double>(), kTolerance)
            << entry.name << " " << end << " " << i;
      };
      near("first", values[i]);
      near("last", values[values.size() - 3 + i]);
    }
  }
  std::filesystem::remove_all(home);
}

INSTANTIATE_TEST_SUITE_P(Families, Transformers, testing::ValuesIn(test::kHfFamilies),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace fpdt
