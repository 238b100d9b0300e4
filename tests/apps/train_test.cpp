// fpdt-run train, from flags to exit code.
#include <algorithm>
#include <filesystem>
#include <sstream>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/io/problem_json.h"
#include "fpdt/io/schedule_json.h"
#include "fpdt/schedule/print.h"

#include "command_line.h"
#include "json_reference.h"

namespace fpdt::test {
namespace {

using Train = CommandLine;
constexpr std::string_view kTrain = "train plan/schedule.json --data text.txt";

TEST_F(Train, ReportsLossAndMemory) {
  const Outcome result = run(fmt::format("{} --steps 3", kTrain));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(says(result.out, "3 steps, 192 tokens"));
  EXPECT_TRUE(says(result.out, "\nmemory of a rank    unplaced       arena        live "))
      << "its bound";
  EXPECT_TRUE(
      says(result.out, "\nunplaced: the upper bound before placement; arena: as planned; "));
  EXPECT_TRUE(says(result.err, "step 3/3  loss"));
}

// `exec` leaves one process, whose peak so far is that of this one.
TEST_F(Train, ThePeakIsNotThatOfTheProgramThatStartedIt) {
  const std::vector<char> large(std::size_t{1} << 30, 'x');
  const Outcome result = shell(fmt::format("exec $RUN {} --steps 1 --json", kTrain));
  ASSERT_EQ(result.code, 0) << result.err;
  const std::int64_t peak = nlohmann::json::parse(result.out).at("memory").at("peak_resident");
  EXPECT_GT(peak, 0);
  EXPECT_LT(peak, std::ssize(large) / 2);
}

TEST_F(Train, JsonIsOneObjectAndNothingElse) {
  const Outcome result = run(fmt::format(
      "{} --steps 4 --json --log log.jsonl --evaluate-every 2 --evaluate-data text.txt", kTrain));
  ASSERT_EQ(result.code, 0) << result.err;
  const auto answer = nlohmann::json::parse(result.out);
  EXPECT_EQ(answer.at("steps"), 4);
  EXPECT_EQ(answer.at("tokens"), 256);
  EXPECT_LT(answer.at("loss"), answer.at("first_loss"));
  EXPECT_TRUE(answer.at("evaluation_loss").is_number());
  EXPECT_TRUE(answer.at("memory").at("as_predicted"));
  EXPECT_GE(answer.at("memory").at("device").at("predicted"),
            answer.at("memory").at("device").at("live"));
  // Four steps and two evaluations, each a line of its own.
  const std::string log = contents("log.jsonl");
  expect_documented("fpdt-run train", log, "log");
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 6);
  EXPECT_EQ(nlohmann::json::parse(log.substr(0, log.find('\n'))).at("step"), 1);
}

// A directory that transformers wrote provides the model and its weights; a run leaves the same.
TEST_F(Train, TakesAndLeavesHuggingFaceDirectories) {
  std::string tokens;
  for (int i = 0; i < 500; ++i) tokens += {static_cast<char>(i * i % 61), '\0'};
  write("tokens.u16", tokens);
  for (const char* family : {"qwen3", "gpt_neox_parallel"}) {
    const std::string home = fmt::format("{}/tests/fixtures/hf/{}", FPDT_SOURCE_DIR, family);
    ASSERT_EQ(plan(fmt::format("lower --model {} --cluster cluster.yaml --strategy strategy.yaml "
                               "--seq-len 64 --out-dir {}",
                               home, family))
                  .code,
              0);
    const Outcome first =
        run(fmt::format("train {0}/schedule.json --data tokens.u16 --steps 2 --init {1} "
                        "--save {0}/left --json",
                        family, home));
    ASSERT_EQ(first.code, 0) << first.err;
    EXPECT_TRUE(nlohmann::json::parse(first.out).at("memory").at("as_predicted"));
    EXPECT_EQ(run(fmt::format("train {0}/schedule.json --data tokens.u16 --steps 3 --resume "
                              "{0}/left",
                              family))
                  .code,
              0);
    EXPECT_EQ(plan(fmt::format("lower --model {0}/left --cluster cluster.yaml --strategy "
                               "strategy.yaml --seq-len 64 --out-dir {0}/again",
                               family))
                  .code,
              0);
  }
}

// The file has two windows and three are asked for: the mean is over two, as if two were asked for.
TEST_F(Train, EvaluationCountsEachWindowOnce) {
  write("two.txt", contents("text.txt").substr(0, 2 * 64 + 1));
  std::vector<double> losses;
  for (const int batches : {2, 3, 1000000}) {
    const Outcome result = run(
        fmt::format("{} --steps 1 --json --log {}.log --evaluate-data two.txt --evaluate-every 1 "
                    "--evaluate-batches {}",
                    kTrain, batches, batches));
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(says(result.err, "over 128 labels"));
    EXPECT_TRUE(says(contents(fmt::format("{}.log", batches)), "\"labels\":128"));
    losses.push_back(nlohmann::json::parse(result.out).at("evaluation_loss"));
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(losses[0], losses[2]);
}

// Tokens 64 to 191 have no labels, so the second step trains the fourth window.
TEST_F(Train, WindowsWithoutALabelAreNoStep) {
  std::string text = contents("text.txt").substr(0, 4 * 64 + 1);
  text[192] = text[64];  // the last label of the first window, here and below
  write("text.txt", text);
  std::string mask(text.size(), '\1');
  for (std::size_t i = 65; i <= 192; ++i) mask[i] = '\0';
  write("mask", mask);
  const Outcome masked = run(fmt::format("{} --steps 2 --loss-mask mask --save masked", kTrain));
  ASSERT_EQ(masked.code, 0) << masked.err;
  EXPECT_TRUE(says(masked.err, "before step 2: skipped 2 sequences without a label"));
  write("text.txt", text.substr(0, 64) + text.substr(192));
  ASSERT_EQ(run(fmt::format("{} --steps 2 --save short", kTrain)).code, 0);
  EXPECT_EQ(contents("masked/fpdt_state.safetensors"), contents("short/fpdt_state.safetensors"));

  write("mask", std::string(129, '\0'));
  const Outcome none =
      run(fmt::format("{} --steps 2 --loss-mask mask --log log --save none", kTrain));
  EXPECT_EQ(none.code, 2);
  EXPECT_TRUE(says(none.err, "every label is masked"));
  EXPECT_FALSE(exists("none"));
  EXPECT_FALSE(exists("log"));
}

TEST_F(Train, SaysThatSequencesAreLongerThanTheWeightsKnow) {
  const std::string home = std::string(FPDT_SOURCE_DIR) + "/tests/fixtures/hf/qwen3";
  const std::string lower = fmt::format(
      "lower --model {} --cluster cluster.yaml --strategy strategy.yaml --out-dir q --seq-len",
      home);
  EXPECT_EQ(plan(lower + " 128").err.find("max_position_embeddings"), std::string::npos);
  EXPECT_TRUE(says(plan(lower + " 160").err, "max_position_embeddings is 128"));
  write("tokens.u16", std::string(400, '\0'));
  const Outcome result =
      run(fmt::format("train q/schedule.json --data tokens.u16 --steps 1 --init {}", home));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(says(result.err, "may not have been trained on sequences of 160"));
}

TEST_F(Train, ACutRunThatIsResumedEndsInTheSameBits) {
  EXPECT_EQ(run(fmt::format("{} --steps 4 --save whole", kTrain)).code, 0);
  EXPECT_EQ(run(fmt::format("{} --steps 2 --save part", kTrain)).code, 0);
  const Outcome resumed = run(fmt::format("{} --steps 4 --resume part --save part", kTrain));
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  for (const char* file : {"model.safetensors", "fpdt_state.safetensors", "trainer.json"}) {
    EXPECT_EQ(contents(fmt::format("whole/{}", file)), contents(fmt::format("part/{}", file)))
        << file;
  }
  const Outcome over = run(fmt::format("{} --steps 4 --resume part", kTrain));
  EXPECT_EQ(over.code, 2);
  EXPECT_TRUE(says(over.err, "4 are already done"));
}

// The cosine of the first run, which had 4 steps, stays when a run goes on to 8 steps.
TEST_F(Train, AResumedRunKeepsItsLearningRate) {
  const std::string cosine =
      fmt::format("{} --learning-rate 1e-2 --min-learning-rate 1e-4 --warmup 2", kTrain);
  ASSERT_EQ(run(fmt::format("{} --steps 8 --decay-steps 6 --log whole.log", cosine)).code, 0);
  ASSERT_EQ(run(fmt::format("{} --steps 6 --save part --log part.log", cosine)).code, 0);
  const Outcome resumed = run(fmt::format("{} --steps 8 --resume part --log part.log", kTrain));
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_TRUE(says(resumed.err, "the learning rate stays at 0.0001 after step 6"));
  const auto steps = [&](const char* log) {
    std::string text;
    std::istringstream lines(contents(log));
    for (std::string line; std::getline(lines, line);) {
      const auto step = nlohmann::json::parse(line);
      text += fmt::format("{} {} {}\n", step.at("step").get<int>(), step.at("loss").get<double>(),
                          step.at("learning_rate").get<double>());
    }
    return text;
  };
  EXPECT_EQ(steps("whole.log"), steps("part.log"));
}

TEST_F(Train, AResumedRunRefusesAnotherCourse) {
  write("mask", std::string(contents("text.txt").size(), '\1'));
  const std::string first = fmt::format("{} --document-separator 46 --loss-mask mask", kTrain);
  ASSERT_EQ(run(fmt::format("{} --steps 2 --save model", first)).code, 0);
  std::string other = contents("text.txt");
  other[100] = 'x';
  write("other.txt", other);
  const std::string resume =
      "train plan/schedule.json --loss-mask mask --resume model --steps 3 --data ";
  EXPECT_EQ(run(resume + "text.txt").code, 0);
  EXPECT_EQ(run(resume + "text.txt --document-separator 46 --learning-rate 1e-3").code, 0);
  for (const auto& [flags, message] : std::vector<std::pair<std::string, std::string>>{
           {"other.txt", "data: \""},
           {"text.txt --learning-rate 2e-3", "learning_rate: 0.001 in the checkpoint, 0.002 now"},
           {"text.txt --warmup 5", "warmup: 0 in the checkpoint, 5 now"},
           {"text.txt --seed 2", "seed: 1 in the checkpoint, 2 now"},
           {"text.txt --document-separator 10", "document_separator: 46 in the checkpoint, 10"}}) {
    const Outcome refused = run(resume + flags);
    EXPECT_EQ(refused.code, 2) << flags;
    EXPECT_TRUE(says(refused.err, message));
    EXPECT_TRUE(says(refused.err, "--allow-changes"));
    const Outcome allowed = run(fmt::format("{}{} --allow-changes", resume, flags));
    EXPECT_EQ(allowed.code, 0) << allowed.err;
    EXPECT_TRUE(says(allowed.err, message));
  }
  const Outcome unmasked = run("train plan/schedule.json --resume model --steps 3 --data text.txt");
  EXPECT_EQ(unmasked.code, 2);
  EXPECT_TRUE(says(unmasked.err, "loss_mask: "));
  // Another schedule may cut sequences differently, and the run says so.
  ASSERT_EQ(plan("lower --model model.yaml --cluster cluster.yaml --strategy strategy.yaml "
                 "--seq-len 96 --clip 2 --out-dir longer")
                .code,
            0);
  const Outcome longer =
      run("train longer/schedule.json --loss-mask mask --resume model --steps 3 --data text.txt");
  EXPECT_EQ(longer.code, 2);
  EXPECT_TRUE(says(longer.err, "seq_len: 64 in the checkpoint, 96 now"));
  EXPECT_TRUE(says(longer.err, "clip: 1 in the checkpoint, 2 now"));
}

// A resumed run keeps the format that was named.
TEST_F(Train, NamesTheFormatOfData) {
  write("tokens", contents("text.txt") + '\0');
  const std::string train = "train plan/schedule.json --data tokens";
  for (const char* command : {"train plan/schedule.json --data tokens --steps 1",
                              "check plan/schedule.json --data tokens"}) {
    const Outcome refused = run(command);
    EXPECT_EQ(refused.code, 2);
    EXPECT_TRUE(says(refused.err, "neither text nor a known kind of token file"));
    EXPECT_EQ(run(fmt::format("{} --data-format bytes", command)).code, 0);
  }
  ASSERT_EQ(run(train + " --data-format bytes --steps 1 --save model").code, 0);
  EXPECT_EQ(run(train + " --steps 2 --resume model").code, 0);
  const Outcome other = run("train plan/schedule.json --data text.txt --data-format u16 --steps 1");
  EXPECT_EQ(other.code, 2);
  EXPECT_TRUE(says(other.err, "expected less than the vocabulary, 256"));
}

// The flag for the training data does not rule a file that has a format of its own.
TEST_F(Train, EvaluationDataHaveAFormatOfTheirOwn) {
  std::string wide;
  for (const char byte : contents("text.txt")) wide += {byte, '\0', '\0', '\0'};
  write("even.u32", wide);
  write("even", wide);
  write("plain", contents("text.txt") + '\0');
  const std::string train =
      "train plan/schedule.json --data plain --data-format bytes --steps 1 --evaluate-every 1 "
      "--evaluate-data ";
  for (const char* file : {"even.u32", "even --evaluate-data-format u32", "plain"}) {
    const Outcome result = run(train + file);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(says(result.err, "over 256 labels"));
  }
  const Outcome other = run(train + "even.u32 --evaluate-data-format u16");
  EXPECT_EQ(other.code, 2);
  EXPECT_TRUE(says(other.err, "its name says u32, but --evaluate-data-format says u16"));
  const Outcome none =
      run("train plan/schedule.json --data text.txt --steps 1 "
          "--evaluate-data-format u16");
  EXPECT_EQ(none.code, 2);
  EXPECT_TRUE(says(none.err, "needs --evaluate-data FILE"));
}

TEST_F(Train, StartsFromWeights) {
  EXPECT_EQ(run(fmt::format("{} --steps 5 --learning-rate 1e-2 --save model", kTrain)).code, 0);
  const Outcome trained = run(fmt::format("{} --steps 1 --json --init model", kTrain));
  const Outcome fresh = run(fmt::format("{} --steps 1 --json", kTrain));
  EXPECT_LT(nlohmann::json::parse(trained.out).at("first_loss"),
            nlohmann::json::parse(fresh.out).at("first_loss"));
  EXPECT_EQ(run(fmt::format("{} --steps 1 --init nowhere", kTrain)).code, 7);
}

TEST_F(Train, StopsWithEightWhenTheLossIsNotFinite) {
  const Outcome result = run(fmt::format("{} --steps 9 --learning-rate 1e30 --save model", kTrain));
  EXPECT_EQ(result.code, 8) << result.err;
  EXPECT_TRUE(says(result.err, "model holds no checkpoint"));
  EXPECT_FALSE(exists("model"));
}

TEST_F(Train, FinishesTheStepAndSavesWhenAsked) {
  const Outcome result = shell(
      "$RUN train plan/schedule.json --data text.txt --steps 1000000 --save model --log log & "
      "while ! test -s log && kill -0 $!; do sleep 0.02; done; kill -TERM $!; wait $!");
  EXPECT_EQ(result.code, 143) << result.err;
  EXPECT_TRUE(exists("model/trainer.json"));
  EXPECT_TRUE(says(result.err, "saved to model"));
}

TEST_F(Train, SaysWhenMoreMemoryWasUsedThanPredicted) {
  write("strategy.yaml",
        "storage: f32\ntiles:\n  chunk_tokens: 16\nlayer_classes:\n"
        "  - {layers: rest, recompute: keep_all, keep: {q: 1, kv: 1, ffn_hidden: 1, norm_output: "
        "1}}\n");
  ASSERT_EQ(plan("lower --model model.yaml --cluster cluster.yaml --strategy strategy.yaml "
                 "--seq-len 256 --out-dir plan")
                .code,
            0);
  // The same program, presented as the answer to a smaller question.
  Schedule schedule = load_schedule(path("plan/schedule.json"));
  auto [problem, strategy] = parse_problem(schedule.problem);
  strategy.layer_classes = {LayerClass{}};
  schedule.problem = print_problem(problem, strategy);
  write("plan/schedule.json", print(schedule));
  const Outcome result = run(fmt::format("{} --steps 1", kTrain));
  EXPECT_EQ(result.code, 4) << result.out;
  EXPECT_TRUE(says(result.out, "over the prediction"));
}

TEST_F(Train, SaysWhenTheScheduleIsNotAsThePlannerWroteIt) {
  EXPECT_FALSE(says(run(fmt::format("{} --steps 1", kTrain)).err, "has no hash"));
  const std::string text = contents("plan/schedule.json");
  write("plan/schedule.json", text.substr(0, text.rfind(",\n\"hash\":")) + "}\n");
  const Outcome result = run(fmt::format("{} --steps 1", kTrain));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(says(result.err, "note: plan/schedule.json has no hash"));
}

TEST_F(Train, OneRankMayRunAlone) {
  const Outcome result = run(fmt::format("{} --steps 2 --communicator solo --rank 1", kTrain));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(says(result.err, "rank 1 of 2 alone"));
  EXPECT_TRUE(says(result.out, "the loss means nothing"));
  EXPECT_EQ(run(fmt::format("{} --steps 2 --communicator solo --rank 2", kTrain)).code, 2);
  EXPECT_EQ(run(fmt::format("{} --steps 2 --communicator solo --save model", kTrain)).code, 2);
}

struct BadCommand {
  std::string arguments;
  int code;
  std::string message;
};

TEST_F(Train, RefusesBadFlags) {
  const std::string train(kTrain);
  for (const BadCommand& bad : {
           BadCommand{"", 2, "subcommand"},
           {"fly", 2, ""},
           {"train plan/schedule.json --steps 1", 2, "--data"},
           {train, 2, "--steps"},
           {train + " --steps 0", 2, "--steps"},
           {train + " --steps many", 2, "--steps"},
           {train + " --steps 1 --speed 9", 2, "--speed"},
           {train + " --steps 1 --learning-rate -1", 2, "--learning-rate"},
           {train + " --steps 1 --learning-rate nan", 2, "--learning-rate"},
           {train + " --steps 1 --save-every 1", 2, "--save"},
           {train + " --steps 1 --allow-changes", 2, "--resume"},
           {train + " --steps 1 --decay-steps 9", 2, "--min-learning-rate"},
           {train + " --steps 1 --min-learning-rate 1", 2, "at least --min-learning-rate"},
           {train + " --steps 1 --evaluate-every 1", 2, "--evaluate-data"},
           {train + " --steps 1 --init a --resume b", 2, "not both"},
           {train + " --steps 1 --communicator pigeon", 2, "pigeon"},
           {train + " --steps 1 --rank 1", 2, "--rank N needs --communicator solo"},
           {train + " --steps 1 --communicator nccl", 2, "it needs --backend cuda"},
           {train + " --steps 1 --native-sums", 2, "--native-sums needs --communicator nccl"},
           {train + " --steps 1 --save .", 2, "is not a checkpoint"},
           {train + " --steps 1 --document-separator 256", 2, "vocabulary of 256"},
       }) {
    const Outcome result = run(bad.arguments);
    EXPECT_EQ(result.code, bad.code) << bad.arguments << "\n" << result.err;
    EXPECT_TRUE(says(result.err, bad.message)) << bad.arguments;
  }
  EXPECT_EQ(run("--help").code, 0);
  EXPECT_EQ(run("train --help").code, 0);
}

TEST_F(Train, RefusesBadFiles) {
  const std::string schedule = contents("plan/schedule.json");
  write("cut.json", schedule.substr(0, schedule.size() / 2));
  std::string changed = schedule;
  changed.replace(changed.find("\"ranks\":2"), 9, "\"ranks\":1");
  write("changed.json", changed);
  write("short.txt", "64 tokens and one more are needed");
  std::filesystem::create_directory(path("folder"));
  for (const BadCommand& bad : {
           BadCommand{"train nowhere.json --data text.txt --steps 1", 7, "nowhere.json"},
           {"train cut.json --data text.txt --steps 1", 2, "cut.json"},
           {"train changed.json --data text.txt --steps 1", 2, "hash"},
           {"train text.txt --data text.txt --steps 1", 2, "text.txt"},
           {"train plan/schedule.json --data nowhere.txt --steps 1", 7, "nowhere.txt"},
           {"train plan/schedule.json --data folder --steps 1", 7, "a directory"},
           {"train plan/schedule.json --data short.txt --steps 1", 2, "needs 65"},
           {"train plan/schedule.json --data text.txt --steps 1 --loss-mask short.txt", 2,
            "loss mask"},
           {"train plan/schedule.json --data text.txt --steps 1 --resume folder", 2,
            "not a checkpoint"},
           {"train plan/schedule.json --data text.txt --steps 1 --log folder", 7, "folder"},
       }) {
    const Outcome result = run(bad.arguments);
    EXPECT_EQ(result.code, bad.code) << bad.arguments << "\n" << result.err;
    EXPECT_TRUE(says(result.err, bad.message)) << bad.arguments;
  }
}

TEST_F(Train, ResultsThatCannotBeWrittenAreAnError) {
  const Outcome result =
      shell("$RUN train plan/schedule.json --data text.txt --steps 1 >/dev/full");
  EXPECT_EQ(result.code, 7);
  EXPECT_TRUE(says(result.err, "standard output"));
}

}  // namespace
}  // namespace fpdt::test
