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

// One chunk of keys more than check allows is refused. The largest takes the verifier 11 s.
TEST(Balance, LargeRingsCanBeVerified) {
  const auto around = [](int nodes) {
    const int ranks = 512 * nodes;
    Problem problem = test::tiny_problem(test::tiny_llama(), 512, 2 * ranks);
    problem.cluster.nodes = nodes;
    Strategy strategy = test::tiny_strategy(ranks);
    strategy.keys = Keys::ring;
    strategy.mesh.ring = ranks;
    return std::pair(problem, strategy);
  };
  const auto [problem, strategy] = around(2);
  EXPECT_NO_THROW(static_cast<void>(lower(problem, strategy)));
  const auto [largest, two_chunks] = around(8);
  EXPECT_EQ(format_diagnostics(check(largest, two_chunks)), "");
  const auto [larger, same] = around(9);
  ASSERT_EQ(check(larger, same).size(), 1U);
  EXPECT_NE(check(larger, same).front().message.find("can be verified for 1; use 9216"),
            std::string::npos)
      << check(larger, same).front().message;
}

// A tile of a ring that is missing, or meets other keys or fewer, is found on rings of any size.
TEST(Balance, EveryTileOfARingCounts) {
  for (const int ranks : {2, 3, 4}) {
    for (const Keys keys : {Keys::gathered, Keys::ring}) {
      Problem problem = test::tiny_problem(test::tiny_llama(), ranks, 12 * ranks);
      Strategy strategy = test::tiny_strategy(4 * ranks);
      strategy.keys = keys;
      strategy.mesh.ring = ranks;
      strategy.layout = Layout::zigzag;
      const Schedule whole = lower_ops(problem, strategy);
      const auto found = [&](auto change) {
        for (std::size_t i = 0; i < whole.blocks.size(); ++i) {
          if (whole.blocks[i].name != "forward") continue;
          for (std::size_t at = 0; at < whole.blocks[i].ops.size(); ++at) {
            if (!std::holds_alternative<AttentionForward>(whole.blocks[i].ops[at].body)) continue;
            Schedule damaged = whole;
            change(damaged.blocks[i].ops, static_cast<std::ptrdiff_t>(at));
            const std::string text = format_diagnostics(verify(damaged));
            EXPECT_NE(text.find("[S50"), std::string::npos)
                << ranks << whole.blocks[i].ops[at].name;
          }
        }
      };
      using Ops = std::vector<Op>;
      const auto tile = [](Ops& ops, std::ptrdiff_t at) -> AttentionForward& {
        return std::get<AttentionForward>(ops[static_cast<std::size_t>(at)].body);
      };
      found([](Ops& ops, std::ptrdiff_t at) { ops.erase(ops.begin() + at); });
      found([](Ops& ops, std::ptrdiff_t at) {
        ops.insert(ops.begin() + at, ops[static_cast<std::size_t>(at)]);
        ops[static_cast<std::size_t>(at)].name += "again";
      });
      found([&](Ops& ops, std::ptrdiff_t at) { tile(ops, at).k_rows -= 1; });
      found([&](Ops& ops, std::ptrdiff_t at) { tile(ops, at).q_first.a += 1; });
      if (keys == Keys::gathered) continue;
      found([&](Ops& ops, std::ptrdiff_t at) { tile(ops, at).k_first.first.s += 1; });
    }
  }
}

}  // namespace
}  // namespace fpdt
