// A careless user, a full disk and a small machine: the programs exit with the documented code and
// a message that names the cause, and leave no half-written file.
#include <cstring>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/base/printable.h"

#include "command_line.h"

namespace fpdt::test {
namespace {

using Hostile = CommandLine;
constexpr std::string_view kTrain = "train plan/schedule.json --data text.txt";
constexpr std::string_view kLower =
    "lower --model model.yaml --cluster cluster.yaml --strategy strategy.yaml";

TEST_F(Hostile, NumbersAreWhatWasTyped) {
  for (const std::string flag :
       {"--steps 0", "--steps 9223372036854775808", "--steps 1e3", "--steps ''", "--seed -1",
        "--seed 18446744073709551615", "--threads 0", "--threads 100000", "--warmup -1",
        "--save-every 0", "--learning-rate inf", "--learning-rate 1e400", "--min-learning-rate nan",
        "--document-separator 2147483648"}) {
    const std::string steps = flag.starts_with("--steps") ? "" : " --steps 1";
    const Outcome result = run(fmt::format("{}{} {}", kTrain, steps, flag));
    EXPECT_EQ(result.code, 2) << flag;
    EXPECT_TRUE(says(result.err, flag.substr(0, flag.find(' ')) + ": expected ")) << flag;
    EXPECT_LT(result.err.size(), 200U) << result.err;
  }
  const Outcome result = plan(fmt::format("{} --seq-len 9223372036854775808 --out-dir x", kLower));
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(says(result.err, "expected 1 to 1G tokens"));
}

// A shell variable that is not set leaves an empty word, or none.
TEST_F(Hostile, EveryFlagNeedsAValue) {
  ASSERT_EQ(run(fmt::format("{} --steps 1 --save model", kTrain)).code, 0);
  const std::string saved = contents("model/trainer.json");
  const std::string train = fmt::format("$RUN {} --steps 2 --save model", kTrain);
  const std::string lower = fmt::format("$PLAN {} --seq-len 64 --out-dir x", kLower);
  for (const std::string& command : {train + " --resume ''",
                                     train + " --resume=",
                                     train + " --resume= --json",
                                     train + " --resume --json",
                                     train + " --init ''",
                                     train + " --log ''",
                                     train + " --log --json",
                                     train + " --loss-mask=",
                                     train + " --evaluate-data ''",
                                     train + " --machine ''",
                                     train + " --draw ''",
                                     std::string("$RUN check ''"),
                                     std::string("$RUN check plan/schedule.json --data ''"),
                                     std::string("$RUN bench --out x --name="),
                                     lower + " --out-dir ''",
                                     lower + " --model=",
                                     lower + " --host-budget ''",
                                     lower + " --clip=",
                                     std::string("$PLAN verify ''"),
                                     std::string("$PLAN draw plan/schedule.json --out=")}) {
    const Outcome result = shell(command);
    EXPECT_EQ(result.code, 2) << command;
    EXPECT_TRUE(says(result.err, ": expected ")) << command;
  }
  EXPECT_EQ(contents("model/trainer.json"), saved);
  EXPECT_FALSE(exists("--json"));
  EXPECT_FALSE(exists("x"));
}

TEST_F(Hostile, OverBudgetWritesNothing) {
  for (const std::string_view budget : {"--device-budget 1KiB", "--host-budget 1B"}) {
    const Outcome result = plan(fmt::format("{} --seq-len 64 --out-dir over {}", kLower, budget));
    EXPECT_EQ(result.code, 3) << result.err;
    EXPECT_FALSE(exists("over"));
  }
}

TEST_F(Hostile, AFullDiskKeepsTheLastPlan) {
  const std::string schedule = contents("plan/schedule.json");
  const std::string strategy = contents("plan/strategy.yaml");
  write("strategy.yaml", "storage: f32\ntiles: {chunk_tokens: 16}\n");
  const Outcome result =
      shell(fmt::format("ulimit -f 8; $PLAN {} --seq-len 64 --out-dir plan", kLower));
  EXPECT_EQ(result.code, 7) << result.err;
  EXPECT_EQ(contents("plan/schedule.json"), schedule);
  EXPECT_EQ(contents("plan/strategy.yaml"), strategy);
}

// Work goes on if nobody listens. A result that nobody receives is an error.
TEST_F(Hostile, StandardDescriptorsMayBeClosedOrFull) {
  const std::string train = fmt::format("$RUN {} --steps 2 --save model --log log", kTrain);
  for (const std::string_view to : {"2>&-", "2>/dev/full", "<&- 2>&-"}) {
    std::filesystem::remove_all(path("model"));
    const Outcome result = shell(fmt::format("{} {}", train, to));
    EXPECT_EQ(result.code, 0) << to;
    EXPECT_TRUE(exists("model/trainer.json")) << to;
  }
  std::filesystem::remove(path("log"));
  EXPECT_EQ(shell(train + " <&- >&- 2>&-").code, 7);
  // All lines come from the log: no result or message went to the file that was opened first.
  const std::string log = contents("log");
  EXPECT_EQ(nlohmann::json::parse(log.substr(0, log.find('\n'))).at("step"), 1);
  EXPECT_EQ(nlohmann::json::parse(log.substr(log.find('\n'))).at("step"), 2);
  EXPECT_EQ(shell("$RUN --help >/dev/full").code, 7);
  // That a reader leaves, as head does, is no error.
  for (const std::string_view words : {"--man", "search --help", "list"}) {
    const Outcome left = shell(fmt::format("(sleep 0.1; $PLAN {}; echo $? >code) | true", words));
    EXPECT_EQ(left.err, "") << words;
    EXPECT_EQ(contents("code"), "0\n") << words;
  }
}

TEST_F(Hostile, AReaderOfTalkMayLeave) {
  const Outcome result = shell(
      fmt::format("{{ $RUN {} --steps 20 --save model 2>&1 >/dev/null; echo $? >code; }} | true; "
                  "while ! test -s code; do sleep 0.01; done",
                  kTrain));
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(contents("code"), "0\n");
  EXPECT_TRUE(exists("model/trainer.json"));
}

TEST_F(Hostile, AFullDiskKeepsTheLastCheckpoint) {
  ASSERT_EQ(run(fmt::format("{} --steps 2 --save model", kTrain)).code, 0);
  const std::string before = contents("model/trainer.json");
  // A limit on file sizes, in units of 1 KiB, stops a write as a full disk does.
  const Outcome result =
      shell(fmt::format("ulimit -f 8; $RUN {} --steps 3 --resume model --save model", kTrain));
  EXPECT_EQ(result.code, 7) << result.err;
  EXPECT_TRUE(says(result.err, "cannot write"));
  EXPECT_EQ(contents("model/trainer.json"), before);
  EXPECT_EQ(run(fmt::format("{} --steps 3 --resume model --save model", kTrain)).code, 0);
}

TEST_F(Hostile, WhereNothingCanBeSavedNothingIsTrained) {
  write("file", "x");
  std::filesystem::create_symlink("nothing", path("dangling"));
  struct Bad {
    std::string path;
    int code;
  };
  for (const Bad& bad : {Bad{"no/such/model", 7},
                         {"file", 2},
                         {"file/model", 7},
                         {"dangling", 2},
                         {std::string(252, 'x'), 7}}) {
    const Outcome result = run(fmt::format("{} --steps 1 --save {}", kTrain, bad.path));
    EXPECT_EQ(result.code, bad.code) << bad.path;
    EXPECT_EQ(result.err.find("step 1"), std::string::npos) << result.err;
  }
  EXPECT_EQ(run(fmt::format("{} --steps 1 --save model/", kTrain)).code, 0);
  EXPECT_TRUE(exists("model/trainer.json"));
}

// A model from elsewhere may hold a link to a private file.
TEST_F(Hostile, AModelBringsNoFileFromElsewhere) {
  ASSERT_EQ(run(fmt::format("{} --steps 1 --save model", kTrain)).code, 0);
  write("private", "secret");
  std::filesystem::create_symlink("../private", path("model/vocab.json"));
  const Outcome result = run(fmt::format("{} --steps 1 --init model --save ck", kTrain));
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(says(result.err, "model/vocab.json: is a link that leaves its directory"));
  EXPECT_FALSE(exists("ck"));
}

// A safetensors file with one more tensor, without checksums.
std::string with_tensor(const std::string& file, const std::string& name) {
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  nlohmann::json header = nlohmann::json::parse(file.substr(sizeof length, length));
  const std::string data = file.substr(sizeof length + length) + std::string(4, '\0');
  header.erase("__metadata__");
  header[name] = {
      {"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {data.size() - 4, data.size()}}};
  const std::string text = header.dump();
  length = text.size();
  std::string changed(sizeof length, '\0');
  std::memcpy(changed.data(), &length, sizeof length);
  return changed + text + data;
}

// What a search multiplies, divides by or rounds to f32.
TEST_F(Hostile, ValuesAtTheirEndsAreRefused) {
  const std::string lower = "lower --model model.yaml --cluster cluster.yaml --seq-len 64 ";
  for (const int slices : {0, -1}) {
    write("slices.yaml", fmt::format("tiles: {{expert_slices: {}}}\n", slices));
    const Outcome result = plan(lower + "--strategy slices.yaml --out-dir x");
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_TRUE(says(result.err, "tiles.expert_slices: ")) << result.err;
  }
  for (const char* flag : {"--epsilon 1e-300", "--weight-decay 1e300", "--beta1 0.99999999"}) {
    const Outcome result = plan(lower + "--strategy strategy.yaml --out-dir x " + flag);
    EXPECT_EQ(result.code, 2) << flag;
    EXPECT_TRUE(says(result.err, "optimizer: expected ")) << result.err;
  }
}

// People may edit the record of a run, whose values then replace those of flags.
TEST_F(Hostile, AnEditedCourseIsChecked) {
  ASSERT_EQ(run(fmt::format("{} --steps 1 --save ck", kTrain)).code, 0);
  nlohmann::json file = nlohmann::json::parse(contents("ck/trainer.json"));
  file.erase("checksum");
  for (const auto& [name, value] : {std::pair("learning_rate", -1),
                                    {"warmup", -1},
                                    {"min_learning_rate", 7},
                                    {"document_separator", -7}}) {
    nlohmann::json edited = file;
    edited["course"][name] = value;
    write("ck/trainer.json", edited.dump());
    const Outcome result = run(fmt::format("{} --steps 2 --resume ck", kTrain));
    EXPECT_EQ(result.code, 2) << name << result.err;
    EXPECT_TRUE(says(result.err, fmt::format("course.{}: expected ", name))) << result.err;
  }
}

// A picture that cannot be written costs no steps, and a bench replaces only a cluster file.
TEST_F(Hostile, WrongPathsAreKnownBeforeTheWork) {
  const Outcome drawn =
      run(fmt::format("{} --steps 2 --machine timed.yaml --draw nowhere/x.svg", kTrain));
  EXPECT_EQ(drawn.code, 7) << drawn.err;
  EXPECT_FALSE(says(drawn.err, "step 1/2")) << drawn.err;
  EXPECT_EQ(run("bench --quick --out text.txt").code, 2);
  EXPECT_TRUE(contents("text.txt").size() > 1000);
}

// Names of tensors and files are shown, but control no terminal.
TEST_F(Hostile, ANameControlsNoTerminal) {
  ASSERT_EQ(run(fmt::format("{} --steps 1 --save model", kTrain)).code, 0);
  std::filesystem::remove(path("model/trainer.json"));  // a model from elsewhere has none
  const std::string weights = contents("model/model.safetensors");
  const auto refused = [&] {
    const Outcome result = run(fmt::format("{} --steps 1 --init model", kTrain));
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_EQ(printable(result.err, "\n"), result.err);
    return result.err;
  };
  for (const std::string name : {"\x1b[2J", "\u009b2J", "\u202etensor", "a\nfpdt-run: fine"}) {
    write("model/model.safetensors", with_tensor(weights, name));
    EXPECT_TRUE(says(refused(), printable(name) + ": unexpected [T103]"));
  }
  std::filesystem::remove(path("model/model.safetensors"));
  write("model/model.safetensors.index.json",
        nlohmann::json{{"weight_map", {{"a", "\u009b2J.safetensors"}}}}.dump());
  EXPECT_TRUE(says(refused(), "expected plain file names"));
}

TEST_F(Hostile, ALogThatNobodyReadsIsAnError) {
  const Outcome result = shell(fmt::format("mkfifo log; $RUN {} --steps 1 --log log", kTrain));
  EXPECT_EQ(result.code, 7);
  EXPECT_TRUE(says(result.err, "log: "));
}

// Limits the address space from what the program needs to load (with CUDA's libraries, over half a
// gigabyte) to more than a step needs.
TEST_F(Hostile, ASmallMachineIsOutOfMemory) {
  constexpr std::int64_t kStep = 20000;
  std::int64_t loaded = kStep;
  while (shell(fmt::format("ulimit -v {}; $RUN --help", loaded)).code != 0) {
    loaded += kStep;
    ASSERT_LT(loaded, 4'000'000);
  }
  int out_of_memory = 0;
  for (const std::int64_t more : {20000, 60000, 120000, 180000}) {
    const std::int64_t kib = loaded + more;
    const Outcome result = shell(fmt::format("ulimit -v {}; $RUN {} --steps 1", kib, kTrain));
    EXPECT_TRUE(result.code == 5 || result.code == 0) << kib << ": " << result.err;
    if (result.code == 5) ++out_of_memory;
  }
  EXPECT_GT(out_of_memory, 0);
}

// Whenever the kill comes, either the last checkpoint or the new one is there.
TEST_F(Hostile, AKilledRunGoesOn) {
  for (int round = 0; round < 8; ++round) {
    // On a busy machine a kill may come before any save, so later rounds wait for one.
    const char* const early = round < 4 ? "! test -s log" : "! test -s log || ! test -d model";
    const Outcome result = shell(
        fmt::format("rm -f log; $RUN {} --steps 1000000 --save model --save-every 1 --log log {} & "
                    "while {{ {}; }} && kill -0 $!; do sleep 0.0{}; done; kill -KILL $!; wait $!",
                    kTrain, exists("model") ? "--resume model" : "", early, 1 + round));
    ASSERT_EQ(result.code, 137) << result.err;
  }
  ASSERT_TRUE(exists("model"));
  const std::string newest =
      exists("model/fpdt_pending/trainer.json") ? "model/fpdt_pending" : "model";
  const auto step = nlohmann::json::parse(contents(newest + "/trainer.json")).at("step");
  const std::int64_t steps = step.get<std::int64_t>() + 1;
  EXPECT_EQ(run(fmt::format("{} --steps {} --resume model --save model", kTrain, steps)).code, 0);
  EXPECT_EQ(run(fmt::format("{} --steps {} --save whole", kTrain, steps)).code, 0);
  for (const char* file : {"model.safetensors", "fpdt_state.safetensors", "trainer.json"}) {
    EXPECT_EQ(contents(fmt::format("whole/{}", file)), contents(fmt::format("model/{}", file)))
        << file;
  }
}

}  // namespace
}  // namespace fpdt::test
