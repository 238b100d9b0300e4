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

}  // namespace
}  // namespace fpdt::test
