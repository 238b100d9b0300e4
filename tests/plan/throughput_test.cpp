// Utilisation under the three conventions, by hand.
#include "fpdt/plan/throughput.h"

#include <gtest/gtest.h>

#include "fpdt/plan/plan.h"

#include "problems.h"

namespace fpdt::test {
namespace {

TEST(Throughput, CountsFlopsAsTheFieldDoes) {
  const Problem problem = tiny_problem(tiny_llama(), 2, 256);
  const Strategy strategy = tiny_strategy(64);
  const ModelFlops flops = model_flops(problem, strategy);
  // Products: all parameters but the embedding of 64 words of width 32.
  const double products = 6.0 * 256 * static_cast<double>(parameter_count(problem.model) - 64 * 32);
  const double attention = 2.0 * 32 * 256 * 256;  // L * H * D * S^2
  EXPECT_DOUBLE_EQ(flops.causal, products + 6 * attention);
  EXPECT_DOUBLE_EQ(flops.full, products + 12 * attention);
}

// A tied table counts as the head's weight; positions are a look-up.
TEST(Throughput, CountsATiedHeadAndNoPositions) {
  const Problem problem = tiny_problem(tiny_gpt(), 1, 256);
  const double products =
      6.0 * 256 * static_cast<double>(parameter_count(problem.model) - 256 * 32);
  EXPECT_DOUBLE_EQ(model_flops(problem, tiny_strategy(64)).causal,
                   products + 6.0 * 2 * 32 * 256 * 256);
}

TEST(Throughput, SharesOfThePeak) {
  Problem problem = tiny_problem(tiny_llama(), 2, 256);
  problem.cluster.rates.peak_flops = 1e9;
  Simulation simulation;
  simulation.nanoseconds = 500000000;
  simulation.flops[static_cast<std::size_t>(Work::matmul)] = 1e8;  // of one rank
  const Throughput result = throughput(problem, tiny_strategy(64), simulation);
  EXPECT_DOUBLE_EQ(result.step_seconds, 0.5);
  EXPECT_DOUBLE_EQ(result.tokens_per_second_per_gpu, 256);
  EXPECT_DOUBLE_EQ(result.hfu, 0.2);
  EXPECT_DOUBLE_EQ(result.mfu_causal, model_flops(problem, tiny_strategy(64)).causal / 1e9);
}

}  // namespace
}  // namespace fpdt::test
