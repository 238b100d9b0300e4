// fpdt-plan lower: where a finding points, what is noted, what is offered.
#include <fmt/format.h>

#include "command_line.h"

namespace fpdt::test {
namespace {

using Plan = CommandLine;
constexpr std::string_view kLowerTiny =
    "lower --model model.yaml --cluster cluster.yaml --seq-len 64 --out-dir out";

TEST_F(Plan, FindingsPointAtTheLineOfTheStrategy) {
  write("s.yaml", "storage: f32\ncopies: {prefetch_depth: 1}\ntiles:\n  chunk_tokens: 15\n");
  const Outcome result = plan(fmt::format("{} --strategy s.yaml", kLowerTiny));
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(says(result.err, "s.yaml:4:17: tiles.chunk_tokens: 15 must be a multiple of 2"));
  EXPECT_TRUE(says(result.err, "nearest is 16"));
  EXPECT_FALSE(says(result.err, "\n\n"));
  EXPECT_FALSE(exists("out"));
}

TEST_F(Plan, AMisspeltFlagIsNamedWithTheNearest) {
  const Outcome result = plan("lower --modle model.yaml --cluster cluster.yaml");
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(says(result.err, "--modle: no such flag; did you mean --model?"));
}

TEST_F(Plan, NotesSettingsWithoutEffect) {
  write(
      "s.yaml",
      "copies: {optimizer_tile: 4096}\ntiles:\n  chunk_tokens: 16\n  long_tiles: true\n"
      "layer_classes:\n  - {layers: rest, recompute: from_input, keep: {dkv: 0.5, residual: 1}}\n");
  const Outcome result = plan(fmt::format("{} --strategy s.yaml", kLowerTiny));
  EXPECT_EQ(result.code, 0) << result.err;
  for (const char* key : {"keep.dkv", "keep.residual", "long_tiles", "optimizer_tile"}) {
    EXPECT_TRUE(says(result.err, fmt::format("{} has no effect", key)));
  }
}

TEST_F(Plan, LowersThePublishedStrategy) {
  const Outcome result = plan(fmt::format("{} --method ulysses --published", kLowerTiny));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(says(contents("out/strategy.yaml"), "chunk_tokens: 64"));
  const Outcome searched = plan(fmt::format("{} --method ulysses", kLowerTiny));
  EXPECT_EQ(searched.code, 2);
  EXPECT_TRUE(says(searched.err, "lower does not search, so it needs --published"));
  const Outcome big =
      plan(fmt::format("{} --method ulysses --published --device-budget 10KiB", kLowerTiny));
  EXPECT_EQ(big.code, 3);
  EXPECT_TRUE(says(big.err, "the budget is 10.0 KiB"));
}

TEST_F(Plan, OptimizerSettingsReachTheSchedule) {
  EXPECT_EQ(plan(fmt::format("{} --clip 0.25 --weight-decay 0.5", kLowerTiny)).code, 0);
  EXPECT_TRUE(says(contents("out/schedule.json"), "\"weight_decay\":0.5,\"clip\":0.25"));
  const Outcome wrong = plan(fmt::format("{} --beta1 1.5", kLowerTiny));
  EXPECT_EQ(wrong.code, 2);
  EXPECT_TRUE(says(wrong.err, "P108"));
}

TEST_F(Plan, PassesAreTimedWhereTheEnvironmentAsks) {
  const Outcome result = shell(fmt::format("FPDT_PASSES=time $PLAN {}", kLowerTiny));
  EXPECT_EQ(result.code, 0) << result.err;
  for (const char* pass : {"\nlower ", "\ndepend ", "\nplace ", "\nverify "}) {
    EXPECT_TRUE(says(result.err, pass));
  }
}

// cuDNN's kernels would prefer one document.
TEST_F(Plan, DocumentsOfASequenceAreAsked) {
  const auto documents = [&](const std::string& cluster, std::string_view flag) {
    write("c.yaml", contents("cluster.yaml") + cluster);
    const Outcome result = plan(fmt::format(
        "lower --model model.yaml --cluster c.yaml --seq-len 64 --out-dir out {}", flag));
    EXPECT_EQ(result.code, 0) << result.err;
    return contents("out/schedule.json").find("documents_input") != std::string::npos;
  };
  EXPECT_TRUE(documents("", ""));
  EXPECT_FALSE(documents("", "--one-document"));
  const std::string cudnn = "row_multiple: 128\nattention: cudnn\n";
  EXPECT_FALSE(documents(cudnn, ""));
  EXPECT_TRUE(documents(cudnn, "--documents"));
  const std::string fused = "lower --model model.yaml --cluster c.yaml --seq-len 64 --out-dir out ";
  EXPECT_TRUE(says(plan(fused + "--documents").err,
                   "because those of cuDNN do not support documents; the rates"));
  EXPECT_TRUE(
      says(plan(fused).err, "because those of cuDNN support heads of 64, 96 or 128 here, not 4; "));
  EXPECT_TRUE(says(plan(fused + "--strategy strategy.yaml").err, "chunk_tokens: 32 must be"));
  write("f32.yaml", "storage: f32\ntiles: {chunk_tokens: 256}\n");
  EXPECT_TRUE(says(plan(fused + "--strategy f32.yaml").err,
                   "because those of cuDNN do not support f32; the rates"));
  EXPECT_EQ(plan(fmt::format("{} --documents --one-document", kLowerTiny)).code, 2);
  EXPECT_EQ(plan(fmt::format("{} --one-document", kLowerTiny)).code, 0);
  const std::string train = "train out/schedule.json --data text.txt --steps 1";
  EXPECT_EQ(run(train).code, 0);
  const Outcome split = run(fmt::format("{} --document-separator 44", train));
  EXPECT_EQ(split.code, 2) << "the prose has a comma in every sequence";
  EXPECT_TRUE(says(split.err, "another document begins at its token 25"));
}

// Lowering the offered strategy shows that its placed bytes fit.
TEST_F(Plan, NamesWhatBindsAndTheNearestFit) {
  const Outcome none = plan(fmt::format("{} --device-budget 1KiB", kLowerTiny));
  EXPECT_EQ(none.code, 3);
  EXPECT_TRUE(says(none.err, "Parameters, gradients and optimizer states alone need"));
  write("s.yaml", "storage: f32\ntiles:\n  chunk_tokens: 64\n");
  const std::string lower = fmt::format("{} --strategy s.yaml --json", kLowerTiny);
  const Outcome fits = plan(lower);
  ASSERT_EQ(fits.code, 0);
  const std::string key = "\"device\":{\"live\":";
  const std::size_t at = fits.out.find("\"arena\":", fits.out.find(key)) + 8;
  const long arena = std::stol(fits.out.substr(at));
  const Outcome over = plan(fmt::format("{} --device-budget {}B", lower, arena - 1));
  EXPECT_EQ(over.code, 3);
  EXPECT_TRUE(says(over.err, "would need"));
}

}  // namespace
}  // namespace fpdt::test
