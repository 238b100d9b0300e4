// fpdt-plan max-seq: the longest sequence, without and with a limit of time.
#include <regex>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "command_line.h"

namespace fpdt::test {
namespace {

using nlohmann::json;

constexpr std::string_view kQuestion = "--model model.yaml --cluster timed.yaml";

class MaxSeq : public CommandLine {
 protected:
  [[nodiscard]] Outcome search(std::string_view more) const {
    return plan(fmt::format("search {} {}", kQuestion, more));
  }
};

TEST_F(MaxSeq, FindsALengthThatFitsAndNothingMuchLonger) {
  const std::string budget = "--host-budget 4MiB --device-budget 4MiB";
  const Outcome found = plan(fmt::format("max-seq {} {} --json", kQuestion, budget));
  ASSERT_EQ(found.code, 0) << found.err;
  const json object = json::parse(found.out);
  const std::int64_t longest = object.at("max_seq_len");
  EXPECT_EQ(object.at("seq_len"), longest);
  EXPECT_EQ(search(fmt::format("--seq-len {} {}", longest, budget)).code, 0);
  EXPECT_EQ(search(fmt::format("--seq-len {} {}", longest + longest / 32, budget)).code, 3);
}

// The limit of chunks ends the lengths of a pinned chunk, and a strategy names chunks that short
// sequences do not have. Neither is an error.
TEST_F(MaxSeq, TakesAChunkAndAStrategy) {
  const std::string machine = "--model llama-tiny --cluster cpu-local";
  const Outcome chunk = plan(fmt::format("max-seq {} --chunk 256 --json", machine));
  ASSERT_EQ(chunk.code, 0) << chunk.err;
  EXPECT_LE(json::parse(chunk.out).at("max_seq_len"), 180 * 256);
  write("late.yaml",
        "tiles: {chunk_tokens: 1K}\nlayer_classes:\n  - recompute: keep_attention\n"
        "    first_stored_chunk: 2\n");
  const Outcome late = plan(fmt::format("max-seq {} --strategy late.yaml --json", machine));
  ASSERT_EQ(late.code, 0) << late.err;
  EXPECT_GT(json::parse(late.out).at("max_seq_len"), 2 * 1024);
}

// A longer step is worth less: the length with a limit is no longer, and holds it.
TEST_F(MaxSeq, HoldsALimitOfTime) {
  const std::string budget = "--method fpdt --host-budget 2MiB --device-budget 2MiB";
  const auto longest = [&](const std::string& flags) {
    const Outcome found = plan(fmt::format("max-seq {} {} {} --json", kQuestion, budget, flags));
    EXPECT_EQ(found.code, 0) << found.err;
    return json::parse(found.out);
  };
  const json any = longest("");
  const json limited = longest("--within 3%");
  EXPECT_LT(limited.at("max_seq_len"), any.at("max_seq_len"));
  const std::int64_t tokens = limited.at("max_seq_len");
  const json roomy = json::parse(
      search(fmt::format(
                 "--json --method fpdt --seq-len {} --device-budget 2MiB --host-budget 1000TiB",
                 tokens))
          .out);
  const double step = limited.at("prediction").at("step_seconds");
  EXPECT_LE(step, 1.031 * roomy.at("prediction").at("step_seconds").get<double>());
  const Outcome wrong = plan(fmt::format("max-seq {} --within ten", kQuestion));
  EXPECT_EQ(wrong.code, 2);
  EXPECT_TRUE(says(wrong.err, "--within ten: expected a percentage over 0, such as 10%"));
}

TEST_F(MaxSeq, SaysThatNothingFits) {
  const Outcome none = plan(fmt::format("max-seq {} --device-budget 1KiB --json", kQuestion));
  EXPECT_EQ(none.code, 3) << none.err;
  const json object = json::parse(none.out);
  EXPECT_EQ(object.at("max_seq_len"), 0);
  EXPECT_EQ(object.at("verdict"), "infeasible");
  const Outcome pointless = plan(fmt::format("max-seq {} --seq-len 64", kQuestion));
  EXPECT_EQ(pointless.code, 2);
  EXPECT_TRUE(says(pointless.err, "--seq-len: no such flag"));
}

// Learned positions limit the length where memory does not, even below one row for each rank.
TEST_F(MaxSeq, EndsWithTheLearnedPositions) {
  for (const std::int64_t positions : {5, 100}) {
    std::string model = contents("model.yaml");
    model = std::regex_replace(
        model, std::regex("parameters: 12112"),
        fmt::format("parameters: {}\nlearned_positions: {}", 12112 + 16 * positions, positions));
    write("short.yaml", model);
    const Outcome found = plan("max-seq --model short.yaml --cluster timed.yaml --json");
    ASSERT_EQ(found.code, 0) << found.err;
    EXPECT_EQ(json::parse(found.out).at("max_seq_len"), positions);
  }
}

}  // namespace
}  // namespace fpdt::test
