// Tests --save: kills, full disks, steps that are not finite, and files of others.
#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "command_line.h"

namespace fpdt::test {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFailAtCall = FPDT_FAIL_AT_CALL;

class Save : public CommandLine {
 protected:
  // Runs `train` with these flags; `before` goes in front of the command.
  [[nodiscard]] Outcome train(std::string_view flags, std::string_view before = "") const {
    return shell(fmt::format("{} $RUN train plan/schedule.json --data text.txt {}", before, flags));
  }
  [[nodiscard]] bool says(const Outcome& outcome, std::string_view part) const {
    return outcome.err.find(part) != std::string::npos;
  }
  [[nodiscard]] std::vector<std::string> names_in(std::string_view directory) const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(path(directory))) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
};

const std::vector<std::string> kFour{"config.json", "fpdt_state.safetensors", "model.safetensors",
                                     "trainer.json"};

TEST_F(Save, AStepThatIsNotFiniteKeepsTheCheckpointBeforeIt) {
  ASSERT_EQ(train("--steps 3 --save ck --save-every 1").code, 0);
  const std::string good = contents("ck/model.safetensors");
  // Step 4 is finite and saved, but its weights are useless, as step 5 shows.
  const std::string wild =
      "--resume ck --save ck --save-every 1 --learning-rate 1e30 --allow-changes --steps ";
  for (const char* steps : {"9", "4"}) {
    const Outcome cut = train(wild + steps);
    EXPECT_EQ(cut.code, 8) << cut.err;
    EXPECT_TRUE(says(cut, "step 4  saved to ck")) << cut.err;
    EXPECT_TRUE(says(cut, "; ck keeps step 3")) << cut.err;
    EXPECT_EQ(contents("ck/model.safetensors"), good);
    EXPECT_EQ(names_in("ck"), kFour);
  }
  const Outcome on = train("--resume ck --save ck --steps 5");
  EXPECT_EQ(on.code, 0) << on.err;
  EXPECT_TRUE(says(on, "resuming ck after step 3"));
}

TEST_F(Save, ASignalLeavesTheCheckpointForTheNextRunToJudge) {
  ASSERT_EQ(train("--steps 2 --save ck").code, 0);
  const Outcome stopped = shell(
      "$RUN train plan/schedule.json --data text.txt --steps 1000000 --resume ck --save ck "
      "--learning-rate 1e-5 --allow-changes --log log & "
      "while ! test -s log && kill -0 $!; do sleep 0.02; done; kill -TERM $!; wait $!");
  EXPECT_EQ(stopped.code, 143) << stopped.err;
  EXPECT_TRUE(exists("ck/fpdt_pending/trainer.json"));
  const auto step = nlohmann::json::parse(contents("ck/fpdt_pending/trainer.json")).at("step");
  const Outcome fresh = train("--steps 1 --save ck");
  EXPECT_EQ(fresh.code, 2);
  EXPECT_TRUE(says(fresh, "continue from it with --resume ck, or remove ck/fpdt_pending"))
      << fresh.err;
  const Outcome on = train(fmt::format("--resume ck --save ck --steps {}", step.get<int>() + 1));
  EXPECT_EQ(on.code, 0) << on.err;
  EXPECT_TRUE(says(on, fmt::format("resuming ck after step {}", step.get<int>())));
  EXPECT_EQ(names_in("ck"), kFour);
}

TEST_F(Save, KeepsFilesOfOthers) {
  ASSERT_EQ(train("--steps 1 --save ck").code, 0);
  write("ck/tokenizer.json", "mine");
  fs::create_directory(path("ck/plots"));
  write("ck/plots/loss.svg", "mine");
  fs::create_directory_symlink("ck", path("link"));
  ASSERT_EQ(train("--steps 3 --resume ck --save link --save-every 1").code, 0);
  EXPECT_EQ(contents("ck/tokenizer.json"), "mine");
  EXPECT_EQ(contents("ck/plots/loss.svg"), "mine");
  EXPECT_EQ(names_in("ck").size(), kFour.size() + 2);
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(nlohmann::json::parse(contents("ck/trainer.json")).at("step"), 3);
  // Not our directory, whatever its name.
  fs::create_directory(path("other"));
  write("other/trainer.json", "{}");
  const Outcome refused = train("--steps 1 --save other");
  EXPECT_EQ(refused.code, 2);
  EXPECT_TRUE(says(refused, "other: exists and is not a checkpoint")) << refused.err;
  EXPECT_EQ(contents("other/trainer.json"), "{}");
}

// Files that fpdt does not change are kept: tokenizer, generation settings, every key of the
// config.
TEST_F(Save, KeepsWhatTheModelCameWith) {
  std::string tokens;
  for (int i = 0; i < 500; ++i) tokens += {static_cast<char>(i * i % 61), '\0'};
  write("tokens.u16", tokens);
  fs::copy(std::string(FPDT_SOURCE_DIR) + "/tests/fixtures/hf/mistral", path("model"));
  write("model/tokenizer.json", "{\"version\": \"1.0\"}");
  write("model/generation_config.json", "{\"temperature\": 0.6}");
  write("model/pytorch_model.bin", "the same weights once more");
  write("model/.hidden", "");
  ASSERT_EQ(plan("lower --model model --cluster cluster.yaml --strategy strategy.yaml --seq-len 64 "
                 "--out-dir mistral")
                .code,
            0);
  const auto train_mistral = [&](std::string_view flags) {
    return run(fmt::format("train mistral/schedule.json --data tokens.u16 {}", flags));
  };
  const Outcome first = train_mistral("--steps 1 --init model --save one");
  ASSERT_EQ(first.code, 0) << first.err;
  ASSERT_EQ(train_mistral("--steps 2 --resume one --save two").code, 0);
  ASSERT_EQ(train_mistral("--steps 3 --resume two --save two").code, 0);
  for (const char* directory : {"one", "two"}) {
    const std::string at = std::string(directory) + "/";
    for (const char* name : {"config.json", "tokenizer.json", "generation_config.json"}) {
      EXPECT_EQ(contents(at + name), contents(std::string("model/") + name)) << at << name;
    }
    EXPECT_FALSE(exists(at + "pytorch_model.bin"));
    EXPECT_FALSE(exists(at + ".hidden"));
  }
}

// A link of the user's in the directory of checkpoints stays, and is no reason to refuse it.
TEST_F(Save, LeavesLinksAlone) {
  ASSERT_EQ(train("--steps 1 --save ck").code, 0);
  ASSERT_EQ(shell("echo mine >notes.txt; ln -s ../notes.txt ck/notes.txt").code, 0);
  const Outcome same = train("--steps 2 --resume ck --save ck");
  EXPECT_EQ(same.code, 0) << same.err;
  EXPECT_FALSE(says(same, "notes.txt")) << same.err;
  EXPECT_EQ(contents("ck/notes.txt"), "mine\n");
}

// Weights and states are open together while they are read.
TEST_F(Save, ManyShardsAreRead) {
  ASSERT_EQ(train("--steps 1 --save ck --shard-size 1KB").code, 0);
  const Outcome found =
      train("--steps 2 --resume ck --save ck --shard-size 1KB", "ulimit -S -n 24;");
  EXPECT_EQ(found.code, 0) << found.err;
}

TEST_F(Save, SaysWhatToDoWithWeightsInTheOldFormat) {
  fs::create_directory(path("model"));
  ASSERT_EQ(train("--steps 1 --save ck").code, 0);
  fs::copy(path("ck/config.json"), path("model/config.json"));
  const Outcome none = train("--steps 1 --init model");
  EXPECT_EQ(none.code, 7);
  EXPECT_TRUE(says(none, "expected model.safetensors or model.safetensors.index.json")) << none.err;
  // Before memory is asked for, which may take minutes.
  EXPECT_EQ(train("--steps 1 --init model --host-memory 64KiB").code, 7);
  write("model/pytorch_model.bin", "PK");
  const Outcome old = train("--steps 1 --init model");
  EXPECT_EQ(old.code, 2);
  EXPECT_TRUE(says(old, "has pytorch_model.bin")) << old.err;
  EXPECT_TRUE(says(old, "from_pretrained(\"model\", dtype=\"auto\").save_pretrained")) << old.err;
}

// One call in this many is cut; FPDT_EVERY_CALL=1 in the environment cuts each of them.
int stride(int usual) { return std::getenv("FPDT_EVERY_CALL") != nullptr ? 1 : usual; }

// Wherever a run is killed, its checkpoint is whole, and the resumed run ends in the same bits.
// This holds also when a checkpoint of one file replaces one of several, or the other way round.
TEST_F(Save, SurvivesAKillAtAnyCall) {
  const std::string shards = " --shard-size 30KB";
  int all_kills = 0;
  for (const auto& [before, after] :
       {std::pair(std::string(), std::string()), std::pair(std::string(), shards),
        std::pair(shards, shards), std::pair(shards, std::string())}) {
    for (const char* name : {"begun", "whole"}) fs::remove_all(path(name));
    ASSERT_EQ(train("--steps 1 --save begun" + before).code, 0);
    ASSERT_EQ(train("--steps 4 --resume begun --save whole" + after).code, 0);
    const std::vector<std::string> names = names_in("whole");
    ASSERT_EQ(names.size(), after.empty() ? 4U : 12U);
    const std::string flags = "--resume ck --save ck --save-every 1 --steps 3" + after;
    int kills = 0;
    Outcome cut;
    for (int call = 1; cut.code != 0; call += stride(before == after ? 29 : 43)) {
      fs::remove_all(path("ck"));
      fs::copy(path("begun"), path("ck"));
      cut = train(flags, fmt::format("LD_PRELOAD={} FPDT_FAIL_AT={}", kFailAtCall, call));
      ASSERT_TRUE(cut.code == 137 || cut.code == 0) << call << " " << cut.code << cut.err;
      kills += cut.code == 137 ? 1 : 0;
      const Outcome on = train("--resume ck --save ck --steps 4" + after);
      ASSERT_EQ(on.code, 0) << call << on.err;
      EXPECT_EQ(names_in("ck"), names) << call;
      for (const std::string& name : names) {
        EXPECT_EQ(contents("ck/" + name), contents("whole/" + name)) << call;
      }
    }
    EXPECT_GE(kills, 4);
    all_kills += kills;
  }
  RecordProperty("kills", all_kills);
}

// In a new directory a kill leaves either a checkpoint or nothing that is in the way.
TEST_F(Save, SurvivesAKillOfItsFirstSave) {
  int kills = 0;
  Outcome cut;
  for (int call = 1; cut.code != 0; call += stride(19)) {
    fs::remove_all(path("ck"));
    cut = train("--save ck --steps 1",
                fmt::format("LD_PRELOAD={} FPDT_FAIL_AT={}", kFailAtCall, call));
    ASSERT_TRUE(cut.code == 137 || cut.code == 0) << call << " " << cut.code << cut.err;
    kills += cut.code == 137 ? 1 : 0;
    const Outcome on = train("--save ck --steps 2 --resume ck");
    EXPECT_TRUE(on.code == 0 || says(on, "no trainer.json")) << call << on.err;
    const Outcome anew = train("--save ck --steps 1");
    EXPECT_EQ(anew.code, 0) << call << anew.err;
    EXPECT_EQ(names_in("ck"), kFour) << call;
  }
  EXPECT_GE(kills, 3);
  RecordProperty("kills", kills);
}

TEST_F(Save, AFullDiskIsAnErrorThatLosesNothing) {
  ASSERT_EQ(train("--steps 1 --save begun").code, 0);
  Outcome cut;
  for (int call = 2; cut.code != 0; call += stride(61)) {
    fs::remove_all(path("ck"));
    fs::copy(path("begun"), path("ck"));
    cut = train("--resume ck --save ck --save-every 1 --steps 3 --shard-size 30KB",
                fmt::format("LD_PRELOAD={} FPDT_DISK_FULL=1 FPDT_FAIL_AT={}", kFailAtCall, call));
    ASSERT_TRUE(cut.code == 7 || cut.code == 0) << call << " " << cut.code << cut.err;
    EXPECT_TRUE(cut.code == 0 || says(cut, "No space left on device")) << cut.err;
    EXPECT_FALSE(exists("ck/fpdt_stage")) << call;
    // If a directory could not be synced, some files may not have moved yet; this run moves them.
    ASSERT_EQ(train("--resume ck --save ck --steps 4").code, 0) << call;
    EXPECT_EQ(names_in("ck"), kFour) << call;
  }
}

}  // namespace
}  // namespace fpdt::test
