// Models, clusters and strategies by name, in every verb that takes them.
#include <filesystem>
#include <utility>

#include <nlohmann/json.hpp>

#include "command_line.h"

namespace fpdt::test {
namespace {

using Share = CommandLine;

TEST_F(Share, EveryVerbKnowsNames) {
  const std::string tiny = "--model llama-tiny --cluster cpu-local --seq-len 512 ";
  for (const std::string& command :
       {"lower --out-dir out --strategy quickstart " + tiny, "compare --with quickstart " + tiny,
        std::string("simulate plan/schedule.json --cluster cpu-local")}) {
    const Outcome result = plan(command);
    EXPECT_EQ(result.code, 0) << command << "\n" << result.err;
  }
  const Outcome compared = plan("compare --with quickstart " + tiny);
  EXPECT_TRUE(says(compared.out, "\nquickstart ")) << "a row has the name that was given";
  // This machine of the schedule has other ranks, which is said of the file that was found.
  const Outcome trained =
      run("train plan/schedule.json --data text.txt --steps 1 --machine a100-80g-x4");
  EXPECT_TRUE(says(trained.err, "a100-80g-x4: its rates are for 4 ranks"));
}

TEST_F(Share, FilesComeFirst) {
  write("llama-tiny", "name: broken");
  EXPECT_TRUE(says(plan("search --model llama-tiny --cluster timed.yaml --seq-len 64").err,
                   "llama-tiny:1"));
  EXPECT_EQ(plan("search --model ./llama3-8b --cluster timed.yaml --seq-len 64").code, 7);
}

TEST_F(Share, WrongNamesAreToldTheNearest) {
  const auto error = [&](std::string_view flags) {
    const Outcome result = plan(std::string("search --seq-len 1M ") + std::string(flags));
    EXPECT_EQ(result.code, 2);
    return result.err;
  };
  EXPECT_EQ(
      error("--model llama3-8 --cluster a100-80g-x4"),
      "fpdt-plan: --model llama3-8: no such file, and no model of fpdt has this name; did you "
      "mean llama3-8b?\n");
  EXPECT_TRUE(says(error("--model lama3-8b --cluster a100-80g-x4"), "did you mean llama3-8b?"));
  EXPECT_TRUE(says(
      error("--model llama3-8b --cluster h200"),
      "no cluster of fpdt has this name; did you mean gh200-96g-x1, h200-141g-x1, h200-141g-x8?"));
  EXPECT_TRUE(says(error("--model llama3-8b --cluster a100-80g-x4 --strategy published"),
                   "did you mean fpdt-published?"));
  EXPECT_TRUE(says(error("--model entirely-different --cluster a100-80g-x4"),
                   "fpdt-plan list shows the names"));
}

TEST_F(Share, PeopleNameMachinesInAnotherOrder) {
  const auto error = [&](std::string_view flags) {
    return plan(std::string("search --seq-len 1M ") + std::string(flags)).err;
  };
  EXPECT_TRUE(says(error("--model llama3-8b --cluster 8xH100"), "did you mean h100-80g-x8?"));
  EXPECT_TRUE(says(error("--model llama3-8b --cluster A100"), "did you mean a100-40g-x4, "));
  EXPECT_TRUE(says(error("--model qwen2.5-7b --cluster h100-80g-x8"),
                   "did you mean qwen3-235b, qwen3-30b-a3b, qwen3-32b, qwen3-8b?"));
  EXPECT_TRUE(says(error("--model unheard-of --cluster h100-80g-x8"), "a config.json will do"));
}

TEST_F(Share, ModelsHaveTheirNamesAtHubs) {
  const auto lower = [&](const std::string& model) {
    return plan("lower --cluster h100-80g-x8 --seq-len 8K --out-dir out --model " + model);
  };
  for (const char* name : {"Qwen/Qwen3-8B", "qwen/qwen3-8b"}) {
    const Outcome known = lower(name);
    EXPECT_TRUE(says(known.out, "model       qwen3-8b: 8190735360 parameters")) << known.err;
  }
  const Outcome unknown = lower("Qwen/Qwen2.5-7B");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_TRUE(says(unknown.err,
                   "its config.json will do: hf download Qwen/Qwen2.5-7B config.json --local-dir "
                   "Qwen2.5-7B, then --model Qwen2.5-7B\n"));
  EXPECT_EQ(lower("plan/none").code, 7) << "what is there in part is a path";
}

TEST_F(Share, TheEnvironmentNamesAnotherFolder) {
  EXPECT_EQ(shell("mkdir -p mine/models && cp model.yaml mine/models/two-layers.yaml").code, 0);
  const std::string search = " FPDT_SHARE=mine $PLAN search --model two-layers --seq-len 64 ";
  const Outcome found = shell(search + "--cluster timed.yaml");
  EXPECT_EQ(found.code, 0) << found.err;
  EXPECT_TRUE(says(shell(search + "--cluster h200-141g-x1").err,
                   "no such file, and mine has no configs/clusters"));
}

TEST_F(Share, ListsEveryFile) {
  const Outcome printed = plan("list");
  const auto object = nlohmann::json::parse(plan("list --json").out);
  for (const auto& [key, folder] : {std::pair{"models", "models"},
                                    {"clusters", "configs/clusters"},
                                    {"strategies", "configs/strategies"}}) {
    std::size_t files = 0;
    for (const auto& file :
         std::filesystem::directory_iterator(std::string(FPDT_SOURCE_DIR) + "/" + folder)) {
      EXPECT_TRUE(says(printed.out, "\n" + file.path().stem().string() + " "));
      ++files;
    }
    EXPECT_EQ(object[key].size(), files) << key;
  }
  EXPECT_TRUE(
      says(printed.out, "\nllama3-8b          8.03 B      32   32 / 8   llama  Hugging Face"));
  EXPECT_TRUE(says(printed.out, "window of 4096"));
  const auto only = nlohmann::json::parse(plan("list clusters --json").out);
  EXPECT_FALSE(only.contains("models"));
  EXPECT_EQ(only["clusters"], object["clusters"]);
}

}  // namespace
}  // namespace fpdt::test
