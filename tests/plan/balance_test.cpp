// How attention is shared by the ranks of a ring.
#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "fpdt/cost/demand.h"
#include "fpdt/plan/lower.h"
#include "fpdt/plan/lowering/lower_ops.h"

#include "problems.h"

namespace fpdt {
namespace {

// The flops of attention of each rank, in a forward block.
std::vector<double> shares(Keys keys, Layout layout, std::int64_t chunk_tokens) {
  const Problem problem = test::tiny_problem(test::tiny_llama(), 4, 64);
  Strategy strategy = test::tiny_strategy(chunk_tokens);
  strategy.mesh.ring = 4;
  strategy.keys = keys;
  strategy.layout = layout;
  const Schedule schedule = lower_ops(problem, strategy);
  std::vector<double> flops;
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    double& sum = flops.emplace_back();
    for (const Block& block : schedule.blocks) {
      for (const Op& op : block.ops) {
        if (std::holds_alternative<AttentionForward>(op.body)) {
          sum += demand(schedule, op, rank).flops;
        }
      }
    }
  }
  return flops;
}

double heaviest(const std::vector<double>& flops) {
  double sum = 0;
  for (const double one : flops) sum += one;
  return *std::max_element(flops.begin(), flops.end()) * static_cast<double>(flops.size()) / sum;
}

// One run a rank: the last of P ranks has (2P-1)/P of the mean. A pair counts whole tokens, so
// with runs of 16 tokens it has a little less.
TEST(Balance, OneRunIsUpToTwiceTheMean) {
  const double most = heaviest(shares(Keys::gathered, Layout::interleaved, 64));
  EXPECT_LT(most, 7.0 / 4);
  EXPECT_GT(most, 7.0 / 4 - 0.05);
}

TEST(Balance, ChunksDivideTheDifference) {
  const double most = heaviest(shares(Keys::gathered, Layout::interleaved, 16));
  EXPECT_LT(most, 1 + 0.75 / 4);
  EXPECT_GT(most, 1.1);
}

TEST(Balance, ZigzagIsEqual) {
  for (const Keys keys : {Keys::gathered, Keys::ring}) {
    for (const std::int64_t chunk : {8, 16, 32}) {
      EXPECT_EQ(heaviest(shares(keys, Layout::zigzag, chunk)), 1.0) << word(keys) << chunk;
    }
  }
}

// What check allows, the verifier takes; one rank or one chunk more is refused before.
TEST(Balance, LargestRingsCanBeVerified) {
  const auto around = [](int ranks, std::int64_t chunk_tokens) {
    const Problem problem = test::tiny_problem(test::tiny_llama(), ranks, 2 * ranks);
    Strategy strategy = test::tiny_strategy(chunk_tokens);
    strategy.keys = Keys::ring;
    strategy.mesh.ring = ranks;
    return std::pair(problem, strategy);
  };
  const auto [problem, strategy] = around(471, 471);
  EXPECT_TRUE(check(problem, strategy).empty());
  EXPECT_NO_THROW(static_cast<void>(lower(problem, strategy)));
  const auto [larger, same] = around(472, 472);
  ASSERT_EQ(check(larger, same).size(), 1U);
  EXPECT_NE(check(larger, same).front().message.find("can be verified for 1; use 944"),
            std::string::npos)
      << check(larger, same).front().message;
}

}  // namespace
}  // namespace fpdt
