// The problem section of a schedule holds the whole question and all decisions.
#include "fpdt/io/problem_json.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

#include "fpdt/io/cluster_file.h"
#include "fpdt/io/model_file.h"

#include "scratch.h"

namespace fpdt::test {
namespace {

using ::testing::HasSubstr;

Problem problem() {
  Problem problem;
  problem.model = load_model(source_path("models/llama3.1-405b.yaml"));
  problem.cluster = load_cluster(source_path("configs/clusters/a100-80g-x32.yaml"));
  problem.cluster.source = "quotes \" and \\ and \xc3\xa9";
  problem.seq_len = 2 << 20;
  problem.device_budget = Bytes{79123456789};
  problem.host_budget = Bytes{1000000000000};
  problem.optimizer = {0.85, 0.999, 1e-9, 0.01, 0.5};
  return problem;
}

TEST(ProblemJson, RoundTrips) {
  Strategy strategy;
  strategy.layer_classes = {LayerClass{3, Recompute::keep_attention, 0, {0.1, 1}}, LayerClass{}};
  const std::string text = print_problem(problem(), strategy);
  EXPECT_EQ(parse_problem(text), std::pair(problem(), strategy));
  Problem other = problem();
  other.documents = false;
  other.cluster.attention = AttentionKernels::cudnn;
  EXPECT_EQ(parse_problem(print_problem(other, strategy)), std::pair(other, strategy));
  EXPECT_EQ(text.find('\n'), std::string::npos);
}

TEST(ProblemJson, RefusesWhatIsNotAProblem) {
  const auto error = [](std::string_view text) {
    return input_error([&] { static_cast<void>(parse_problem(text)); });
  };
  EXPECT_THAT(error("{}"), HasSubstr("model: this key is required"));
  EXPECT_THAT(error("[]"), HasSubstr("expected a map"));
  std::string text = print_problem(problem(), {});
  EXPECT_THAT(error(text.replace(text.find("seq_len"), 7, "seq_lem")),
              HasSubstr("did you mean \"seq_len\"?"));
  const std::string whole = print_problem(problem(), {});
  for (std::size_t length = 0; length < whole.size(); length += 7) {
    EXPECT_NE(error(std::string_view(whole).substr(0, length)), "") << length;
  }
}

}  // namespace
}  // namespace fpdt::test
