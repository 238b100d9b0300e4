// fpdt-run check, from flags to exit code.
#include <nlohmann/json.hpp>

#include "command_line.h"

namespace fpdt::test {
namespace {

using Check = CommandLine;

TEST_F(Check, AgreesAndListsEveryTensor) {
  const Outcome result = run("check plan/schedule.json");
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  for (const char* word : {"embed.weight", "layers.1.down.weight", "head.weight", "tolerance",
                           "The schedule agrees with the reference."}) {
    EXPECT_NE(result.out.find(word), std::string::npos) << word;
  }
}

TEST_F(Check, JsonHoldsTheSame) {
  const Outcome result = run("check plan/schedule.json --json --data text.txt --seed 3");
  ASSERT_EQ(result.code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_TRUE(json.at("agrees"));
  EXPECT_EQ(json.at("tensors").size(), 3U + 2U * 6U);
  EXPECT_LE(json.at("loss_error"), json.at("tolerance"));
}

TEST_F(Check, ReturnsFourOnDisagreement) {
  const Outcome result = run("check plan/schedule.json --tolerance 1e-12");
  EXPECT_EQ(result.code, 4);
  EXPECT_NE(result.out.find("disagrees"), std::string::npos);
}

TEST_F(Check, RefusesWhatTheReferenceCannotCompute) {
  ASSERT_EQ(
      plan("lower --model model.yaml --cluster cluster.yaml --seq-len 64K --out-dir long").code, 0);
  const Outcome result = run("check long/schedule.json");
  EXPECT_EQ(result.code, 2) << result.out << result.err;
  EXPECT_NE(result.err.find("fewer tokens"), std::string::npos);
}

TEST_F(Check, BisectOfASoundScheduleFindsNoVariantThatDiffers) {
  const Outcome result = run("check plan/schedule.json --bisect");
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  for (const char* line : {"one rank", "one chunk", "nothing spilled", "all of these",
                           "\nThe schedule agrees with the reference, and no variant differs.\n"}) {
    EXPECT_NE(result.out.find(line), std::string::npos) << line << "\n" << result.out;
  }
}

TEST_F(Check, BisectTellsAChangedFileFromAWrongStrategy) {
  ASSERT_EQ(shell("sed -z -e 's/\"scale\":0.5/\"scale\":0.6/g' -e 's/,\\n\"hash\":\"[0-9a-f]*\"//' "
                  "plan/schedule.json > changed.json")
                .code,
            0);
  const Outcome result = run("check changed.json --bisect --json --data text.txt");
  EXPECT_EQ(result.code, 4) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_FALSE(json.at("agrees"));
  const auto& bisection = json.at("bisection");
  EXPECT_EQ(bisection.at("trials")[0].at("verdict"), "disagrees");
  EXPECT_EQ(bisection.at("trials")[1].at("change"), "lowered again");
  EXPECT_EQ(bisection.at("trials")[1].at("verdict"), "agrees");
  EXPECT_EQ(bisection.at("conclusion"),
            "The error goes away when the strategy is lowered again: the file is not what its "
            "strategy lowers to.");
}

}  // namespace
}  // namespace fpdt::test
