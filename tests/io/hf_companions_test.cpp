// The files that are copied with a checkpoint, and the key of config.json that depends on the
// weights.
#include "fpdt/io/hf_companions.h"

#include <filesystem>
#include <gmock/gmock.h>

#include <gtest/gtest.h>

#include "scratch.h"

namespace fpdt::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(HfCompanions, AreAllFilesButWeightsAndHiddenOnes) {
  const ScratchDirectory scratch;
  for (const char* name : {"config.json", "model.safetensors", "model.safetensors.index.json",
                           "pytorch_model.bin", "model.gguf", ".gitattributes", "trainer.json"}) {
    static_cast<void>(scratch.write(name, "[]"));
  }
  static_cast<void>(scratch.write("tokenizer.json", "{}"));
  std::filesystem::create_directory(scratch.file("original"));
  std::filesystem::create_symlink("tokenizer.json", scratch.file("merges.txt"));
  std::filesystem::create_symlink("nowhere", scratch.file("broken"));
  static_cast<void>(scratch.write("dump.txt", ""));
  std::filesystem::resize_file(scratch.file("dump.txt"), (64 << 20) + 1);
  const HfCompanions found = read_companions(scratch.path(), {"trainer.json"});
  EXPECT_EQ(found.config, "[]");
  EXPECT_THAT(found.files, ElementsAre(Pair("merges.txt", "{}"), Pair("tokenizer.json", "{}")));
  EXPECT_THAT(found.left_out, ElementsAre("dump.txt"));
  EXPECT_THAT(io_error([&] { static_cast<void>(read_companions(scratch.file("missing"))); }),
              HasSubstr("missing: cannot list"));
}

// What is saved then is text alone.
TEST(HfCompanions, HaveNoConfigOfImages) {
  const ScratchDirectory scratch;
  static_cast<void>(scratch.write("config.json", R"({"model_type": "gemma3", "text_config": {}})"));
  static_cast<void>(scratch.write("tokenizer.json", "{}"));
  const HfCompanions found = read_companions(scratch.path());
  EXPECT_EQ(found.config, "");
  EXPECT_THAT(found.files, ElementsAre(Pair("tokenizer.json", "{}")));
}

TEST(HfCompanions, MayBeLinksOfTheHuggingFaceCache) {
  const ScratchDirectory cache;
  std::filesystem::create_directories(cache.file("snapshots/main"));
  std::filesystem::create_directories(cache.file("blobs"));
  static_cast<void>(cache.write("blobs/123", "a b"));
  std::filesystem::create_symlink("../../blobs/123", cache.file("snapshots/main/merges.txt"));
  EXPECT_THAT(read_companions(cache.file("snapshots/main")).files,
              ElementsAre(Pair("merges.txt", "a b")));
}

// They are copied into every checkpoint, where others may read them.
TEST(HfCompanions, AreNoFilesFromElsewhere) {
  const ScratchDirectory elsewhere;
  const std::string secret = elsewhere.write("key", "secret");
  for (const char* name : {"vocab.json", "config.json"}) {
    const ScratchDirectory scratch;
    std::filesystem::create_symlink(secret, scratch.file(name));
    EXPECT_THAT(input_error([&] { static_cast<void>(read_companions(scratch.path())); }),
                HasSubstr(std::string(name) + ": is a link that leaves its directory"));
  }
}

TEST(HfCompanions, AreBoundedTogether) {
  const ScratchDirectory scratch;
  for (const char* name : {"a", "b", "c", "d"}) {  // sparse: 50 MiB each
    std::filesystem::resize_file(scratch.write(name, ""), 50 << 20);
  }
  const HfCompanions large = read_companions(scratch.path());
  EXPECT_EQ(large.files.size(), 2U);
  EXPECT_THAT(large.left_out, ElementsAre("c", "d"));
  const ScratchDirectory many;
  for (int i = 0; i < 103; ++i) static_cast<void>(many.write(std::to_string(1000 + i), "x"));
  const HfCompanions some = read_companions(many.path());
  EXPECT_EQ(some.files.size(), 100U);
  EXPECT_THAT(some.left_out, ElementsAre("1100", "1101", "1102"));
}

TEST(HfCompanions, KeepEveryKeyOfTheConfig) {
  const std::string config =
      "{\"model_type\": \"mistral\",\n\"rope\": {\"theta\": 1e-05},"
      " \"dtype\": \"float32\", \"bos_token_id\": 1}\n";
  EXPECT_EQ(config_for_weights(config, "F32"), config);
  const std::string narrow = config_for_weights(config, "BF16");
  EXPECT_EQ(narrow,
            "{\n  \"model_type\": \"mistral\",\n  \"rope\": {\"theta\":1e-05},\n"
            "  \"dtype\": \"bfloat16\",\n  \"bos_token_id\": 1\n}\n");
  EXPECT_EQ(config_for_weights(narrow, "BF16"), narrow);
  EXPECT_EQ(config_for_weights("{\"torch_dtype\": \"bfloat16\"}", "F32"),
            "{\n  \"torch_dtype\": \"float32\"\n}\n");
  EXPECT_EQ(config_for_weights("{\"a\": [1, null]}", "F32"),
            "{\n  \"a\": [1,null],\n  \"dtype\": \"float32\"\n}\n");
}

}  // namespace
}  // namespace fpdt::test
