// No lever and no pair of levers beats the search on small questions.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/io/cluster_file.h"
#include "fpdt/io/model_file.h"

#include "climber.h"

namespace fpdt::test {
namespace {

struct Question {
  const char* name;
  const char* model;
  const char* cluster;
  std::int64_t devices, seq_len;
  std::int64_t host_gibi;
};

class SearchQuality : public testing::TestWithParam<Question> {};

// docs/results/search.md has forty larger ones.
TEST_P(SearchQuality, TwoLeversGainLittle) {
  const Question& one = GetParam();
  const std::string root = FPDT_SOURCE_DIR;
  Problem problem;
  problem.model = load_model(fmt::format("{}/models/{}.yaml", root, one.model));
  problem.cluster = load_cluster(fmt::format("{}/configs/clusters/{}.yaml", root, one.cluster));
  problem.cluster.nodes = 1;
  problem.cluster.devices_per_node = one.devices;
  problem.seq_len = one.seq_len;
  problem.documents = false;
  problem.device_budget = problem.cluster.device_memory;
  problem.host_budget = Bytes{one.host_gibi << 30};
  const SearchResult result = search(problem);
  ASSERT_TRUE(result.best);
  const Climbed more = climbed(problem, *result.best);
  EXPECT_LE(more.gain, 0.003) << more.words;
}

INSTANTIATE_TEST_SUITE_P(
    Small, SearchQuality,
    testing::Values(Question{"OneDevice", "llama3-8b", "a100-80g-x4", 1, 1 << 17, 256},
                    Question{"LittleHostMemory", "llama3-8b", "h100-80g-x8", 1, 1 << 18, 160},
                    Question{"FourDevices", "gpt-6.7b", "a100-80g-x4", 4, 1 << 18, 512}),
    [](const auto& which) { return std::string(which.param.name); });

}  // namespace
}  // namespace fpdt::test
