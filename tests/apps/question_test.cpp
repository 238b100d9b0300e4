// What a question asks: sequences of a step, parts of a machine, budgets that are too small.
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "command_line.h"

namespace fpdt::test {
namespace {

class Asked : public CommandLine {
 protected:
  [[nodiscard]] Outcome search(std::string_view more) const {
    return plan(fmt::format("search --model model.yaml --cluster timed.yaml {}", more));
  }
  [[nodiscard]] nlohmann::json answer(std::string_view more, int code = 0) const {
    const Outcome result = search(fmt::format("--json {}", more));
    EXPECT_EQ(result.code, code) << result.err;
    return nlohmann::json::parse(result.out);
  }
};

// Both budgets are too small: the answer names both.
TEST_F(Asked, NamesEveryShortMemory) {
  const std::string budgets = "--seq-len 64K --device-budget 40KiB --host-budget 40KiB";
  const nlohmann::json needs = answer(budgets, 3).at("needs");
  ASSERT_EQ(needs.size(), 2U);
  EXPECT_EQ(needs.at(0).at("memory"), "device");
  EXPECT_EQ(needs.at(1).at("memory"), "host");
  for (const nlohmann::json& need : needs) {
    EXPECT_EQ(need.at("have_bytes"), 40 << 10);
    EXPECT_GT(need.at("need_bytes"), 40 << 10);
  }
  const Outcome text = search(budgets);
  EXPECT_TRUE(says(text.out, "device memory: the least found needs"));
  EXPECT_TRUE(says(text.out, "host memory: that strategy needs"));
}

TEST_F(Asked, StepsHaveTheSequencesThatAreAsked) {
  const auto strategy = [&](const std::string& flags) {
    return answer("--seq-len 64 " + flags).at("strategy");
  };
  const auto sequences = [](const nlohmann::json& one) {
    return one.at("data_parallel").get<int>() * one.at("settings").at("micro_batches").get<int>();
  };
  EXPECT_EQ(sequences(strategy("")), 1);
  EXPECT_EQ(sequences(strategy("--batch 6")), 6);
  EXPECT_EQ(strategy("--data-parallel 2").at("data_parallel"), 2);
  EXPECT_EQ(strategy("--batch 6 --micro-batches 3").at("data_parallel"), 2);
  const Outcome uneven = search("--seq-len 64 --batch 5 --data-parallel 2");
  EXPECT_EQ(uneven.code, 2);
  EXPECT_TRUE(says(uneven.err, "--batch 5: --data-parallel 2 with --micro-batches 1 makes 2"));
}

// Gradients in bf16 are asked for, and then each replica has one sequence.
TEST_F(Asked, GradientsHaveTheFormatThatIsAsked) {
  const auto strategy = [&](const std::string& flags) {
    return answer("--seq-len 64 " + flags).at("strategy");
  };
  EXPECT_EQ(strategy("").at("settings").at("gradients"), "f32");
  const nlohmann::json rounded = strategy("--gradients bf16 --batch 2");
  EXPECT_EQ(rounded.at("settings").at("gradients"), "bf16");
  EXPECT_EQ(rounded.at("settings").at("micro_batches"), 1);
  EXPECT_EQ(rounded.at("data_parallel"), 2);
  EXPECT_TRUE(says(rounded.at("words").get<std::string>(), "gradients in bf16"));
  const nlohmann::json turns = strategy("--gradients bf16 --micro-batches 2");
  EXPECT_EQ(turns.at("settings").at("gradients"), "bf16");
  EXPECT_EQ(turns.at("settings").at("micro_batches"), 2);
}

// Four heads cannot be divided over 8 or 6 ranks that train one sequence. Rings share its queries.
TEST_F(Asked, AnyNumberOfDevicesSharesASequence) {
  for (const int gpus : {8, 6}) {
    const Outcome one = search(fmt::format("--seq-len 66 --gpus {} --json", gpus));
    ASSERT_EQ(one.code, 0) << one.err;
    const nlohmann::json answer = nlohmann::json::parse(one.out).at("strategy");
    EXPECT_EQ(answer.at("ranks"), gpus);
    EXPECT_GT(answer.at("mesh").at("ring"), 1);
    EXPECT_FALSE(says(one.err, "unused"));
  }
}

TEST_F(Asked, SaysWhichDevicesStayUnused) {
  const Outcome one = search("--seq-len 64 --gpus 8 --method fpdt --json");
  ASSERT_EQ(one.code, 0) << one.err;
  EXPECT_TRUE(says(one.err, "note: 4 of 8 GPUs stay unused: 1 sequence and 4 heads do not divide"));
  EXPECT_TRUE(says(one.err, "--batch 2 uses all"));
  EXPECT_EQ(nlohmann::json::parse(one.out).at("strategy").at("ranks"), 4);
  const Outcome two = search("--seq-len 64 --gpus 8 --batch 2 --method fpdt");
  EXPECT_FALSE(says(two.err, "unused"));
}

// Every plan that the search writes is a strategy that gives it again, also where the heads leave
// some of the GPUs unused.
TEST_F(Asked, PlansAreStrategiesOfTheSameQuestion) {
  constexpr std::uint32_t kSeed = 24;
  std::mt19937 draw(kSeed);
  const std::vector<std::string> methods{"fpdt", "ulysses", "alst"};
  int unused = 0;
  for (int i = 0; i < 6; ++i) {
    const std::string question =
        fmt::format("--cluster h100-80g-x8 --gpus {} --seq-len {} --batch {}", 3 + draw() % 5,
                    64 + draw() % 4000, 1 + draw() % 3);
    const std::string search = "search --model model.yaml " + question;
    const Outcome first = plan(
        fmt::format("{} --method {} --out-dir first", search, methods[draw() % methods.size()]));
    ASSERT_EQ(first.code, 0) << "seed " << kSeed << ": " << question << first.err;
    const Outcome again = plan(search.substr(0, search.find(" --batch")) +
                               " --strategy first/plan.yaml --out-dir again");
    ASSERT_EQ(again.code, 0) << "seed " << kSeed << ": " << question << again.err;
    EXPECT_EQ(contents("again/schedule.json"), contents("first/schedule.json")) << question;
    const bool some = first.err.find(" stay unused: ") != std::string::npos;
    EXPECT_EQ(again.err.find(" stay unused: its mesh has ") != std::string::npos, some) << question;
    unused += some ? 1 : 0;
  }
  EXPECT_GT(unused, 1);
  EXPECT_LT(unused, 6);
  // Beside another question, too.
  const Outcome beside = plan(
      "compare --model model.yaml --cluster h100-80g-x8 --seq-len 512 "
      "--method ulysses --with first/plan.yaml");
  EXPECT_EQ(beside.code, 0) << beside.err;
}

TEST_F(Asked, SizesMayBeFractions) {
  EXPECT_EQ(search("--seq-len 64 --device-budget 0.3GiB --host-budget 1.7GiB").code, 0);
  EXPECT_EQ(search("--seq-len 64 --device-budget 0.3B").code, 2);
}

// As `compare` has it, so that nobody takes the one for the other.
TEST_F(Asked, APublishedPlanSaysWhatItsImplementationWastes) {
  const std::string question =
      "--model llama3-8b --cluster h100-80g-x8 --seq-len 128K --method fpdt";
  const Outcome text = plan(fmt::format("search {} --published", question));
  EXPECT_TRUE(says(text.out, "\nwaste      not included: its implementation wastes "));
  const auto parsed = [&](const std::string& arguments) {
    return nlohmann::json::parse(plan(arguments).out);
  };
  const nlohmann::json row = parsed(fmt::format("compare {} --json", question)).at("rows").at(0);
  const nlohmann::json found = parsed(fmt::format("search {} --published --json", question));
  const nlohmann::json& waste = found.at("waste");
  const nlohmann::json& prediction = found.at("prediction");
  EXPECT_NEAR(prediction.at("step_seconds").get<double>() + waste.at("step_seconds").get<double>(),
              row.at("step_seconds").get<double>(), 1e-6);
  EXPECT_EQ(prediction.at("device_peak_bytes").get<std::int64_t>() +
                waste.at("device_bytes").get<std::int64_t>(),
            row.at("device_peak_bytes").get<std::int64_t>());
  EXPECT_GT(waste.at("step_seconds"), 1);
  EXPECT_EQ(answer("--seq-len 64").at("waste"), nullptr);
}

}  // namespace
}  // namespace fpdt::test
