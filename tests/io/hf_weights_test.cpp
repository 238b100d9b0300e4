// Weights that transformers wrote, in our layout, give the loss and logits that transformers
// computed (tests/fixtures/hf/generate.py).
#include "fpdt/io/hf_weights.h"

#include <array>
#include <filesystem>
#include <gmock/gmock.h>
#include <map>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "fpdt/io/checksum.h"
#include "fpdt/io/file.h"
#include "fpdt/io/hf_model_writer.h"
#include "fpdt/io/model_file.h"
#include "fpdt/reference/model.h"

#include "hf_families.h"
#include "hf_weights_case.h"
#include "scratch.h"

namespace fpdt::test {
namespace {

using ::testing::HasSubstr;

// transformers computes in f32: a roundoff of 6e-8 in some 100 dependent operations on numbers near
// 1.
constexpr double kFloatTolerance = 2e-5;

class HfFixture : public testing::TestWithParam<const char*> {
 protected:
  std::string directory() const {
    return source_path(std::string("tests/fixtures/hf/") + GetParam());
  }
};

reference::Parameters parameters_of(const HfWeights& weights, const ModelSpec& model) {
  reference::Parameters parameters;
  for (const TensorSpec& tensor : model_tensors(model)) {
    const std::vector<float> values = whole(weights, tensor.name);
    EXPECT_EQ(std::ssize(values), tensor.elements()) << tensor.name;
    parameters.tensors[tensor.name].assign(values.begin(), values.end());
  }
  return parameters;
}

// Writes a model in pieces of `piece` elements, which begin and end anywhere.
void write_model(const std::string& directory, const HfWeights& weights, const ModelSpec& model,
                 std::string_view dtype, std::size_t piece, std::int64_t shard_bytes) {
  std::vector<float> all;
  for (const TensorSpec& tensor : model_tensors(model)) {
    const std::vector<float> values = whole(weights, tensor.name);
    all.insert(all.end(), values.begin(), values.end());
  }
  HfModelWriter writer(directory, model, dtype, "", shard_bytes);
  for (std::span<const float> rest(all); !rest.empty();) {
    writer.write(rest.first(std::min(piece, rest.size())));
    rest = rest.subspan(std::min(piece, rest.size()));
  }
  writer.commit();
}

TEST_P(HfFixture, ComputesWhatTransformersComputes) {
  const ModelSpec model = load_model(directory());
  const auto expected = nlohmann::json::parse(read_file(directory() + "/expected.json", 100000));
  reference::Sample sample;
  sample.tokens = expected["tokens"].get<std::vector<std::int32_t>>();
  sample.labels.assign(sample.tokens.begin() + 1, sample.tokens.end());
  sample.labels.push_back(-1);
  sample.documents.assign(sample.tokens.size(), 0);
  const reference::Parameters parameters = parameters_of(open_weights(directory(), model), model);
  const double scale = 1.0 / static_cast<double>(sample.tokens.size() - 1);
  const double balance = expected.value("balance", 0.0), loss = expected["loss"].get<double>();
  EXPECT_NEAR(reference::loss(model, parameters, {sample}, scale), loss - balance, kFloatTolerance);
  EXPECT_NEAR(reference::loss_and_gradients(model, parameters, {sample}, scale).loss, loss,
              kFloatTolerance);
  const reference::Matrix logits = reference::logits(model, parameters, sample);
  const auto last = expected["last_logits"].get<std::vector<double>>();
  for (std::size_t i = 0; i < last.size(); ++i) {
    EXPECT_NEAR(logits[logits.size() - last.size() + i], last[i], kFloatTolerance) << i;
  }
}

TEST_P(HfFixture, WritesTheTensorsThatItRead) {
  const ScratchDirectory scratch;
  const ModelSpec model = load_model(directory());
  const HfWeights weights = open_weights(directory(), model);
  write_model(scratch.path(), weights, model, "F32", 1000, kShardBytes);
  EXPECT_EQ(parameter_count(load_model(scratch.path())), parameter_count(model));
  EXPECT_EQ(parameters_of(open_weights(scratch.path(), model), model).tensors,
            parameters_of(weights, model).tensors);
  const SafetensorsFile theirs(directory() + "/model.safetensors");
  const SafetensorsFile ours(scratch.file("model.safetensors"));
  ASSERT_EQ(ours.entries().size(), theirs.entries().size());
  for (const SafetensorsEntry& entry : theirs.entries()) {
    ASSERT_NE(ours.find(entry.name), nullptr) << entry.name;
    EXPECT_EQ(ours.find(entry.name)->shape, entry.shape) << entry.name;
    std::vector<float> expected(static_cast<std::size_t>(entry.elements()));
    std::vector<float> found(expected.size());
    theirs.read_f32(entry.name, 0, expected);
    ours.read_f32(entry.name, 0, found);
    // A weight that is stored less one is rounded where it is added.
    const double error = model.family == Family::gemma ? 0x1p-23 : 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(found[i]), static_cast<double>(expected[i]), error)
          << entry.name;
    }
  }
}

// The files do not depend on how their values arrive, and are those that earlier versions wrote.
TEST_P(HfFixture, WritesTheSameBytesAsEver) {
  const std::map<std::string, std::array<const char*, 2>> expected{
      {"llama", {"0c2e116a8504dadc", "9bc74f64ab7f6d1a"}},
      {"llama_linear", {"de6e41985bff365f", "787e2422c22121f2"}},
      {"mistral", {"d753b6debb6ca8f7", "8cfc5d56c0058f0a"}},
      {"qwen2", {"6d23950d9b874c68", "745e9224126a92a1"}},
      {"qwen3", {"9e24dffc73ba0f15", "16ca42c3fa02bb56"}},
      {"gpt2", {"3e50b1539cd5b320", "5b5767b4624189c0"}},
      {"gpt_neox", {"8985886eeaca7cc5", "43366d295ceac9ce"}},
      {"mistral_window", {"de8f6fe1fe323f64", "067a7837242b806c"}},
      {"qwen3_windows", {"2f25b7b04a39be5e", "cdb6849c4ffe2942"}},
      {"phi3", {"671c1eccf7de678c", "b857ad2249d4a209"}},
      {"phi3_long", {"9bd858e20629d4e2", "0d8c2454beebb955"}},
      {"phi3_short", {"b102b643071bdaf7", "25d788422077a5a4"}},
      {"gemma2", {"27500438c948cefc", "d341fda70c905ca2"}},
      {"mixtral", {"f1ce004c4d8c9956", "2ee19f333d86f5d4"}},
      {"qwen3_moe", {"829bb251a6a5e7fb", "776fcfb0912ca514"}},
      {"olmo2", {"a925fd80cbccbc51", "3cca937064952f27"}},
      {"olmo3", {"4f6adaf4cac958e8", "66cf00de4e1cb92c"}},
      {"olmoe", {"212e96c5633d9233", "50b45e26b3912c02"}},
      {"minimax_m2", {"8ca766b70f63c59f", "e2b85c17f515b1d9"}},
      {"glm4_moe", {"c9406b69b3096fe0", "2d8c5ccf975feb58"}},
      {"gpt_oss", {"50eee9bbd3111e4c", "590bb52962124121"}},
      {"gemma3", {"85af7f801d901ada", "2b45dbbae1a28a93"}},
      {"gpt_neox_parallel", {"0b651d605bee447a", "3d58c0c0f09957fe"}}};
  const ModelSpec model = load_model(directory());
  const HfWeights weights = open_weights(directory(), model);
  for (const std::size_t dtype : {0U, 1U}) {
    for (const std::size_t piece : {7U, 1U << 20U}) {
      const ScratchDirectory scratch;
      write_model(scratch.path(), weights, model, dtype == 0 ? "F32" : "BF16", piece, kShardBytes);
      const std::string bytes = read_file(scratch.file("config.json"), 1 << 20) +
                                read_file(scratch.file("model.safetensors"), 1 << 24);
      EXPECT_EQ(checksum_digits(checksum(bytes)), expected.at(GetParam())[dtype]);
      EXPECT_EQ(scratch.entries(), 2U);
    }
  }
}

TEST_P(HfFixture, WritesTheSameTensorsInShards) {
  const ScratchDirectory scratch;
  const ModelSpec model = load_model(directory());
  const HfWeights weights = open_weights(directory(), model);
  write_model(scratch.path(), weights, model, "F32", 1000, 5000);
  EXPECT_FALSE(std::filesystem::exists(scratch.file("model.safetensors")));
  const HfWeights shards = open_weights(scratch.path(), model);
  EXPECT_GE(shards.stored().files().size(), 3U);
  EXPECT_EQ(scratch.entries(), shards.stored().files().size() + 2);
  EXPECT_EQ(parameters_of(shards, model).tensors, parameters_of(weights, model).tensors);
}

TEST_P(HfFixture, ReadsAnyRange) {
  const ModelSpec model = load_model(directory());
  const HfWeights weights = open_weights(directory(), model);
  for (const TensorSpec& tensor : model_tensors(model)) {
    const std::vector<float> all = whole(weights, tensor.name);
    const std::int64_t elements = tensor.elements();
    for (const std::int64_t length : {std::int64_t{1}, std::int64_t{37}, elements / 3, elements}) {
      for (std::int64_t first = 0; first + length <= elements; first += 1 + elements / 5) {
        std::vector<float> part(static_cast<std::size_t>(length), -1);
        weights.read(tensor.name, first, part);
        EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + first))
            << tensor.name << " " << first << " " << length;
      }
    }
  }
}

// Every tensor that we wrote is checked against its checksum, in whatever layout it is read.
TEST_P(HfFixture, NoticesAFlippedBitOfAnyTensor) {
  const ScratchDirectory scratch;
  const ModelSpec model = load_model(directory());
  const HfWeights weights = open_weights(directory(), model);
  write_model(scratch.path(), weights, model, "F32", 1000, kShardBytes);
  const std::string whole = read_file(scratch.file("model.safetensors"), 1 << 24);
  std::size_t end = whole.size();
  const std::vector<SafetensorsEntry> entries =
      SafetensorsFile(scratch.file("model.safetensors")).entries();
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    end -= static_cast<std::size_t>(entry->bytes());
    std::string flipped = whole;
    flipped[end] = static_cast<char>(flipped[end] ^ 0x10);
    static_cast<void>(scratch.write("model.safetensors", flipped));
    const HfWeights damaged = open_weights(scratch.path(), model);
    EXPECT_THAT(input_error([&] { parameters_of(damaged, model); }),
                HasSubstr("model.safetensors: " + entry->name + ": the bytes"));
    int found = 0;
    for (const TensorSpec& tensor : model_tensors(model)) {
      found += input_error([&] { damaged.verify(tensor.name); }).empty() ? 0 : 1;
    }
    EXPECT_EQ(found, 1) << entry->name;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, HfFixture, testing::ValuesIn(test::kHfFamilies),
                         [](const auto& family) { return std::string(family.param); });

TEST(HfWeights, ListsMissingUnexpectedAndMisshapen) {
  const std::string directory = source_path("tests/fixtures/hf/llama");
  ModelSpec model = load_model(directory);
  model.layers = 3;
  EXPECT_THAT(input_error([&] { const HfWeights weights = open_weights(directory, model); }),
              HasSubstr("model.layers.2.self_attn.q_proj.weight: missing [T103]"));
  model.layers = 1;
  EXPECT_THAT(input_error([&] { const HfWeights weights = open_weights(directory, model); }),
              HasSubstr("model.layers.1.mlp.up_proj.weight: unexpected [T103]"));
  model.layers = 2;
  model.kv_heads = 4;
  EXPECT_THAT(input_error([&] { const HfWeights weights = open_weights(directory, model); }),
              HasSubstr("k_proj.weight: expected shape [32, 32], found [16, 32]"));
}

// The weights of a fixture with another prefix of names, and tensors of 4 elements besides.
void write_renamed(const ScratchDirectory& scratch, const std::string& directory,
                   std::string_view prefix, const std::string& other,
                   const std::vector<std::string>& more) {
  const SafetensorsFile file(directory + "/model.safetensors");
  std::vector<SafetensorsEntry> entries = file.entries();
  for (SafetensorsEntry& entry : entries) {
    if (entry.name.starts_with(prefix)) entry.name = other + entry.name.substr(prefix.size());
  }
  for (const std::string& name : more) entries.push_back({name, "F32", {1, 1, 2, 2}});
  SafetensorsWriter writer(scratch.file("model.safetensors"), entries);
  for (const SafetensorsEntry& entry : file.entries()) {
    std::vector<float> values(static_cast<std::size_t>(entry.elements()));
    file.read_f32(entry.name, 0, values);
    writer.write_f32(values);
  }
  for (std::size_t i = 0; i < more.size(); ++i) writer.write_f32(std::vector<float>(4));
  writer.commit();
}

void expect_same_weights(const std::string& a, const std::string& b, const ModelSpec& model) {
  const HfWeights ours = open_weights(a, model), theirs = open_weights(b, model);
  for (const TensorSpec& tensor : model_tensors(model)) {
    EXPECT_EQ(whole(ours, tensor.name), whole(theirs, tensor.name)) << tensor.name;
  }
}

TEST(HfWeights, ReadsGpt2WithoutItsPrefixAndIgnoresMaskBuffers) {
  const ScratchDirectory scratch;
  const std::string directory = source_path("tests/fixtures/hf/gpt2");
  write_renamed(scratch, directory, "transformer.", "", {"h.0.attn.bias"});
  expect_same_weights(scratch.path(), directory, load_model(directory));
}

// All matrices of the experts of a layer in one tensor, as transformers 5 computes with them.
TEST(HfWeights, ReadsMergedExperts) {
  for (const char* family : {"mixtral", "qwen3_moe", "olmoe", "minimax_m2", "glm4_moe"}) {
    const std::string directory = source_path(std::string("tests/fixtures/hf/") + family);
    const ModelSpec model = load_model(directory);
    const HfWeights apart = open_weights(directory, model);
    std::map<std::string, std::vector<float>> merged;
    std::vector<SafetensorsEntry> entries;
    for (const TensorSpec& tensor : model_tensors(model)) {
      for (const HfPiece& piece : hf_pieces(model, tensor.name, HfExperts::merged)) {
        const std::size_t width = static_cast<std::size_t>(tensor.elements()) /
                                  static_cast<std::size_t>(tensor.shape.front());
        const std::vector<float> values = whole(apart, tensor.name);
        const auto first = values.begin() + piece.row * static_cast<std::int64_t>(width);
        merged[piece.name].assign(first, first + piece.rows * static_cast<std::int64_t>(width));
        entries.push_back({piece.name, "F32", piece.hf_shape});
      }
    }
    EXPECT_TRUE(merged.contains("model.layers.1.mlp.experts.gate_up_proj"));
    EXPECT_TRUE(merged.contains("model.layers.1.mlp.gate.weight"));
    const ScratchDirectory scratch;
    SafetensorsWriter writer(scratch.file("model.safetensors"), entries);
    for (const SafetensorsEntry& entry : entries) writer.write_f32(merged.at(entry.name));
    writer.commit();
    expect_same_weights(scratch.path(), directory, model);
  }
}

// A Gemma 3 for images and text, as published and as its modules are named.
TEST(HfWeights, ReadsTheTextOfAModelForImages) {
  const std::string directory = source_path("tests/fixtures/hf/gemma3");
  const ModelSpec model = load_model(directory);
  {
    const ScratchDirectory scratch;
    write_renamed(scratch, directory, "model.", "language_model.model.",
                  {"language_model.lm_head.weight", "vision_tower.vision_model.post_layernorm.bias",
                   "multi_modal_projector.mm_input_projection_weight"});
    expect_same_weights(scratch.path(), directory, model);
  }
  {
    const ScratchDirectory scratch;
    write_renamed(scratch, directory, "model.", "model.language_model.",
                  {"lm_head.weight", "model.vision_tower.vision_model.post_layernorm.bias",
                   "model.multi_modal_projector.mm_soft_emb_norm.weight"});
    expect_same_weights(scratch.path(), directory, model);
  }
  // Tensors of images beside text alone, and of something else.
  for (const char* prefix : {"model.", "language_model.model."}) {
    const ScratchDirectory scratch;
    write_renamed(scratch, directory, "model.", prefix, {"vision_tower.x", "audio_tower.x"});
    const std::string error =
        input_error([&] { const HfWeights weights = open_weights(scratch.path(), model); });
    EXPECT_THAT(error, HasSubstr("audio_tower.x: unexpected [T103]"));
    EXPECT_EQ(error.find("vision_tower.x") == std::string::npos, std::string(prefix) != "model.");
  }
}

// What a writer must hold whole is what the planner counts for it.
TEST(HfPieces, AreInOrderUnlessMemoryIsCounted) {
  for (const char* name : test::kHfFamilies) {
    const ModelSpec model = load_model(source_path(std::string("tests/fixtures/hf/") + name));
    bool all_in_order = true;
    for (const TensorSpec& tensor : model_tensors(model)) {
      const std::vector<HfPiece> pieces = hf_pieces(model, tensor.name);
      if (in_order(pieces)) continue;
      all_in_order = false;
      const std::int64_t width = tensor.elements() / tensor.shape[0];
      EXPECT_LE(Bytes{4 * pieces.front().unit * width}, reordering_bytes(model)) << tensor.name;
    }
    EXPECT_EQ(all_in_order, reordering_bytes(model) == Bytes{}) << name;
  }
}

TEST(HfPieces, CoverEveryRowOnce) {
  for (const char* name : test::kHfFamilies) {
    const ModelSpec model = load_model(source_path(std::string("tests/fixtures/hf/") + name));
    for (const TensorSpec& tensor : model_tensors(model)) {
      std::int64_t row = 0;
      for (const HfPiece& piece : hf_pieces(model, tensor.name)) {
        EXPECT_EQ(piece.row, row) << tensor.name;
        row += piece.rows;
      }
      EXPECT_EQ(row, tensor.shape[0]) << tensor.name;
    }
  }
}

}  // namespace
}  // namespace fpdt::test
