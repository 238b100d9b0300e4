// Divisions of the ranks and the batch, by heads or by queries as the pinned method shares them.
#include "fpdt/plan/search/pins.h"

#include <gtest/gtest.h>

#include "fpdt/plan/fit.h"
#include "fpdt/plan/search/levers.h"

#include "problems.h"

namespace fpdt::test {
namespace {

// Of any strategy in which the ranks of a replica are one ring.
const Method kSharesQueries{
    .name = "queries",
    .title = "Queries",
    .source = "",
    .sharing = Sharing::queries,
    .holds =
        [](const Problem& problem, const Strategy& strategy) {
          const Geometry shape = geometry(problem, strategy);
          return shape.ring == shape.sequence_parallel;
        },
    .entered = [](const Problem&, Strategy strategy) { return strategy; },
    .published = over_all_ranks,
    .waste = {},
};

Problem with_heads(std::int64_t ranks, std::int64_t heads, std::int64_t kv_heads) {
  Problem problem = tiny_problem(tiny_llama(), ranks, 1 << 10);
  problem.model.heads = heads;
  problem.model.kv_heads = kv_heads;
  problem.device_budget = problem.host_budget = Bytes{1 << 30};
  return problem;
}

Pins of_queries(std::int64_t batch) {
  Pins pins;
  pins.method = &kSharesQueries;
  pins.batch = batch;
  return pins;
}

// Four heads divide by none of these numbers.
TEST(Pins, AnyNumberOfRanksSharesQueries) {
  for (const std::int64_t ranks : {3, 5, 6}) {
    for (const std::int64_t kv_heads : {4, 1}) {
      const Problem problem = with_heads(ranks, 4, kv_heads);
      const std::vector<Split> all = splits(problem, of_queries(1));
      ASSERT_EQ(all.size(), 1U);
      EXPECT_EQ(all.front().data_parallel, 1);
      EXPECT_EQ(all.front().ring, ranks);
      require_possible(problem, of_queries(1));
      for (const std::int64_t tokens : lengths_of(problem, of_queries(1), all.front())) {
        const Strategy strategy = skeleton_of(problem, all.front(), tokens);
        EXPECT_TRUE(check(problem, strategy).empty()) << ranks << " " << tokens;
        EXPECT_TRUE(kSharesQueries.holds(problem, strategy)) << ranks << " " << tokens;
      }
      Pins of_heads;
      of_heads.method = method_named("ulysses");
      EXPECT_TRUE(splits(problem, of_heads).empty()) << ranks;
      EXPECT_THROW(require_possible(problem, of_heads), InputError);
    }
  }
}

TEST(Pins, RingsHaveTheRanksOfAReplica) {
  const Problem problem = with_heads(6, 4, 2);
  const std::vector<Split> all = splits(problem, of_queries(6));
  ASSERT_EQ(all.size(), 4U);
  for (const Split& split : all) {
    EXPECT_EQ(split.data_parallel * split.ring, 6);
    EXPECT_EQ(split.data_parallel * split.micro_batches, 6);
  }
  Pins pins = of_queries(6);
  pins.data_parallel = 2;
  ASSERT_EQ(splits(problem, pins).size(), 1U);
  EXPECT_EQ(splits(problem, pins).front().ring, 3);
  pins.data_parallel = 4;
  EXPECT_TRUE(splits(problem, pins).empty());
}

// A lever of replicas leaves the ranks of each in one ring.
TEST(Pins, ReplicasOfRingsAreRings) {
  const Problem problem = with_heads(6, 4, 2);
  Strategy from = over_all_ranks(problem, 2);
  from.tiles.chunk_tokens = 1026;  // whole rows of six ranks
  std::int64_t rings = 0;
  for (const Lever& lever : levers()) {
    if (lever.name != "replicas") continue;
    for (const Change& change : lever.changes(problem, from)) {
      if (!kSharesQueries.holds(problem, change.strategy)) continue;
      ++rings;
      EXPECT_EQ(change.strategy.mesh.replicas, 2);
      EXPECT_EQ(change.strategy.mesh.ring, 3);
    }
  }
  EXPECT_EQ(rings, 1);
}

TEST(Pins, HeadsDivideWhereEachRankHasWholeOnes) {
  const ModelSpec model = with_heads(1, 12, 4).model;
  for (const std::int64_t ranks : {1, 2, 4, 12}) EXPECT_TRUE(divides_heads(model, ranks)) << ranks;
  for (const std::int64_t ranks : {3, 5, 6, 8, 24}) {
    EXPECT_FALSE(divides_heads(model, ranks)) << ranks;
  }
}

}  // namespace
}  // namespace fpdt::test
