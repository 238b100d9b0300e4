// Every model in models/ loads with its published number of parameters.
#include "fpdt/io/model_file.h"

#include <filesystem>
#include <gmock/gmock.h>

#include <gtest/gtest.h>

#include "fpdt/io/file.h"

#include "scratch.h"

namespace fpdt::test {
namespace {

using ::testing::HasSubstr;

std::string tiny() { return read_file(source_path("models/llama-tiny.yaml"), 10000); }

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  return text.replace(text.find(from), from.size(), to);
}

std::string model_error(const std::string& text) {
  return input_error([&] { static_cast<void>(parse_model(text, "m.yaml")); });
}

TEST(ModelFile, EveryModelLoadsUnderItsOwnName) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("models"))) {
    const ModelSpec model = load_model(entry.path().string());
    EXPECT_EQ(model.name, entry.path().stem().string());
    ++count;
  }
  EXPECT_GE(count, 13);
}

TEST(ModelFile, ModelsHaveThePublishedParameters) {
  const auto count = [](const char* name) {
    return parameter_count(load_model(source_path(std::string("models/") + name)));
  };
  EXPECT_EQ(count("llama3-8b.yaml"), 8030261248);
  EXPECT_EQ(count("llama3-70b.yaml"), 70553706496);
  EXPECT_EQ(count("llama3.1-405b.yaml"), 405853388800);
  EXPECT_EQ(count("qwen3-8b.yaml"), 8190735360);
  EXPECT_EQ(count("qwen3-32b.yaml"), 32762123264);
  EXPECT_EQ(count("mistral-7b.yaml"), 7248023552);
  EXPECT_EQ(count("gpt-neox-20b.yaml"), 20554567680);
  EXPECT_EQ(count("gemma3-1b.yaml"), 999885952);
}

TEST(ModelFile, HeadsHaveDefaults) {
  std::string text = replaced(tiny(), "kv_heads: 4\n", "");
  text = replaced(text, "head_dim: 16\n", "");
  EXPECT_THAT(model_error(text),
              HasSubstr("parameters: the file says 803968, its sizes make 869504"));
  const ModelSpec model = parse_model(replaced(text, "803968", "869504"), "m.yaml");
  EXPECT_EQ(model.kv_heads, 8);
  EXPECT_EQ(model.head_dim, 16);
}

TEST(ModelFile, FindsContradictions) {
  EXPECT_THAT(model_error(replaced(tiny(), "kv_heads: 4", "kv_heads: 3")),
              HasSubstr("multiple of kv_heads"));
  EXPECT_THAT(model_error(replaced(tiny(), "layers: 4", "layers: 1000000000")),
              HasSubstr("layers"));
  EXPECT_THAT(model_error(replaced(tiny(), "hidden: 128", "hidden: -128")), HasSubstr("hidden"));
  EXPECT_THAT(model_error(replaced(tiny(), "activation: swiglu", "activation: swigul")),
              HasSubstr("did you mean \"swiglu\"?"));
  EXPECT_THAT(model_error(replaced(tiny(), "fraction: 1", "fraction: 0.1875")),
              HasSubstr("rotates 3 dimensions, expected an even number"));
  EXPECT_THAT(model_error(replaced(tiny(), "theta:", "thetta:")),
              HasSubstr("rotary.thetta: unknown key"));
}

TEST(ModelFile, ReadsKindsOfLayers) {
  const std::string rotary = "rotary:\n  fraction: 1\n  theta: 10000\n";
  ASSERT_THAT(tiny(), HasSubstr(rotary));
  const std::string kinds = R"(kinds:
  - name: window
    window: 1024
    rotary: {fraction: 1}
  - name: full
    rotary: {fraction: 1, theta: 1e6}
pattern: [window, window, full]
)";
  const ModelSpec model = parse_model(replaced(tiny(), rotary, kinds), "m.yaml");
  EXPECT_EQ(pattern_in_words(model), "3 layers of window (1024), 1 of full");
  EXPECT_EQ(model.kinds[1].rotary.theta, 1e6);
  const ModelSpec one = parse_model(tiny() + "window: 4096\n", "m.yaml");
  EXPECT_EQ(one.kinds.front().window, 4096);
  const auto error = [&](std::string_view from, std::string_view to) {
    return model_error(replaced(replaced(tiny(), rotary, kinds), from, to));
  };
  EXPECT_THAT(error("window, full]", "windw, full]"), HasSubstr("did you mean \"window\"?"));
  EXPECT_THAT(error("pattern: [window, window, full]\n", ""), HasSubstr("pattern: this key"));
  EXPECT_THAT(model_error(tiny() + "pattern: [full]\n"),
              HasSubstr("pattern: expected names that the file gives before, in `kinds`"));
  EXPECT_THAT(error("pattern:", "window: 4\npattern:"), HasSubstr("window: unknown key"));
  EXPECT_THAT(error("window, full]", "window]"), HasSubstr("no layer is of kind \"full\""));
}

TEST(ModelFile, NotesSequencesThatAreLongerThanThoseOfItsTraining) {
  const ScratchDirectory scratch;
  const auto note = [&](const std::string& text, std::int64_t seq_len) {
    return note_positions(scratch.write("config.json", text), seq_len);
  };
  EXPECT_EQ(note(R"({"max_position_embeddings": 2048})", 2048), "");
  EXPECT_THAT(note(R"({"max_position_embeddings": 2048})", 2049),
              HasSubstr("max_position_embeddings is 2048: its weights may not have been trained on "
                        "sequences of 2049"));
  EXPECT_THAT(note_positions(scratch.path(), 1 << 20), HasSubstr("config.json: max_position"));
  EXPECT_EQ(note(R"({})", 1 << 30), "");
  EXPECT_EQ(note(R"({"max_position_embeddings": null})", 1 << 30), "");
  EXPECT_EQ(note_positions(source_path("models/llama-tiny.yaml"), 1 << 30), "");
}

TEST(ModelFile, TellsTheFormByThePath) {
  const std::string fixture = source_path("tests/fixtures/hf/llama");
  EXPECT_EQ(load_model(fixture), load_model(fixture + "/config.json"));
  EXPECT_NE(io_error([] { static_cast<void>(load_model("/nowhere.yaml")); }), "");
}

}  // namespace
}  // namespace fpdt::test
