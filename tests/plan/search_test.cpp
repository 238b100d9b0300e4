// The search against enumeration, against its own levers, and within the budgets.
#include "fpdt/plan/search/search.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/io/cluster_file.h"
#include "fpdt/io/model_file.h"
#include "fpdt/plan/plan.h"
#include "fpdt/plan/search/climb.h"
#include "fpdt/plan/search/estimates.h"
#include "fpdt/plan/search/feasible.h"
#include "fpdt/plan/search/floor.h"
#include "fpdt/plan/search/ladder.h"
#include "fpdt/plan/search/longest.h"
#include "fpdt/spec/checkpoint_bytes.h"

#include "problems.h"

namespace fpdt::test {
namespace {

// The levers that are enumerated; all others stay as in the starting points.
std::vector<Lever> few_levers() {
  std::vector<Lever> few;
  for (const Lever& lever : levers()) {
    for (const char* name :
         {"chunk_tokens", "recompute attention", "recompute everything", "backward_order",
          "keep states", "keep kv", "keep dkv", "long_tiles"}) {
      if (lever.name == name) few.push_back(lever);
    }
  }
  return few;
}

// The lowest cost within the budgets that a few levers can reach.
double enumerated(const Problem& problem, const Strategy& start) {
  const Machine machine(problem.cluster, RateEnd::typical);
  std::vector<Strategy> seen{start};
  std::deque<Strategy> open{start};
  double best = std::numeric_limits<double>::infinity();
  while (!open.empty()) {
    const Strategy now = open.front();
    open.pop_front();
    if (fits(problem, now)) {
      const Usage need = usage(problem, now);
      best = std::min(best, cost({now, need, step_nanoseconds(problem, now, machine)}));
    }
    for (const Lever& lever : few_levers()) {
      for (const Change& change : lever.changes(problem, now)) {
        if (std::find(seen.begin(), seen.end(), change.strategy) != seen.end()) continue;
        seen.push_back(change.strategy);
        open.push_back(change.strategy);
      }
    }
  }
  EXPECT_GT(seen.size(), 100U);
  return best;
}

struct SmallCase {
  const char* name;
  std::int64_t ranks;
  std::int64_t seq_len;
  std::int64_t device_kib, host_kib;  // budgets
};

class Small : public testing::TestWithParam<SmallCase> {};

TEST_P(Small, EqualsEnumeration) {
  const SmallCase& one = GetParam();
  Problem problem = timed_problem(tiny_llama(), one.ranks, one.seq_len);
  problem.device_budget = Bytes{one.device_kib << 10};
  problem.host_budget = Bytes{one.host_kib << 10};
  const SearchEffort effort{0, few_levers()};
  const SearchResult found = search(problem, {}, effort);
  const Strategy start = spilled(problem, 1, one.seq_len);
  const double best = enumerated(problem, start);
  if (!found.best) {
    EXPECT_EQ(best, std::numeric_limits<double>::infinity());
    return;
  }
  EXPECT_EQ(cost(*found.best), best);
}

INSTANTIATE_TEST_SUITE_P(Budgets, Small,
                         testing::Values(SmallCase{"Ample", 1, 64, 4096, 4096},
                                         SmallCase{"TightDevice", 1, 64, 780, 4096},
                                         SmallCase{"TightHost", 1, 64, 4096, 120},
                                         SmallCase{"Nothing", 1, 64, 16, 16},
                                         SmallCase{"TwoRanks", 2, 96, 2048, 4096}),
                         [](const auto& which) { return std::string(which.param.name); });

// No single lever makes the answer faster within the budgets, up to the search's tolerance: once
// for the lever, and once for the headroom for which the answer gave up speed.
void expect_no_lever_is_faster(const Problem& problem) {
  const SearchResult found = search(problem);
  ASSERT_TRUE(found.best);
  EXPECT_TRUE(within(problem, found.best->usage));
  const SearchEffort effort;
  std::size_t compared = 0;
  for (const Worth& one : worth(problem, found.best->strategy)) {
    if (!one.fits) continue;
    ++compared;
    const double floor = 1 - 2 * effort.indifference;
    EXPECT_GE(cost({one.change.strategy, one.usage, one.nanoseconds}), floor * cost(*found.best))
        << one.change.words;
  }
  EXPECT_GT(compared, 5U);
}

TEST(Search, NoSingleLeverIsFaster) {
  for (const std::int64_t device_mib : {2, 64}) {
    Problem problem = timed_problem(tiny_gpt(), 2, 256);
    problem.device_budget = Bytes{device_mib << 20};
    problem.host_budget = Bytes{std::int64_t{8} << 20};
    expect_no_lever_is_faster(problem);
  }
}

TEST(Search, NoSingleLeverIsFasterForEightBillionAtTwoMillion) {
  expect_no_lever_is_faster(llama3_8b(std::int64_t{1} << 21));
}

TEST(Search, NoSingleLeverIsFasterForEightBillionAtOneHundredTwentyEightThousand) {
  expect_no_lever_is_faster(llama3_8b(std::int64_t{1} << 17));
}

TEST(Search, NoSingleLeverIsFasterForSeventyBillionAtFourMillion) {
  expect_no_lever_is_faster(llama3_70b(std::int64_t{1} << 22));
}

// Where layers have windows, levers gain much. Starts with short chunks seem faster before that.
TEST(Search, ChunksOfTwiceTheLengthAreNotFaster) {
  Problem problem = llama3_8b(std::int64_t{1} << 19);
  problem.model = load_model(FPDT_SOURCE_DIR "/models/mistral0.1-7b.yaml");
  problem.cluster = load_cluster(FPDT_SOURCE_DIR "/configs/clusters/a100-80g-x4.yaml");
  problem.host_budget = problem.cluster.host_available();
  const Candidate found = search(problem, {}, {.front = false}).best.value();
  const Pins longer{nullptr, 2 * found.strategy.tiles.chunk_tokens, {}};
  const Candidate pinned = search(problem, longer, {.front = false}).best.value();
  EXPECT_GE(cost(pinned), (1 - SearchEffort{}.indifference) * cost(found));
}

// One clock times what is shown side by side, and placement gives its bytes. With one chunk, edges
// make some calls of a block wait for what only others need.
TEST(Search, TheFrontIsThatOfPlans) {
  const Problem problem = llama3_8b(std::int64_t{1} << 15);
  Pins pins;
  pins.method = method_named("ulysses");
  const SearchResult found = search(problem, pins);
  ASSERT_GT(found.front.size(), 1U);
  for (const Candidate& one : found.front) {
    const Plan plan = make_plan(problem, one.strategy);
    EXPECT_EQ(one.nanoseconds, plan.simulation.nanoseconds) << in_words(problem, one.strategy);
    EXPECT_EQ(one.usage, plan.usage) << in_words(problem, one.strategy);
  }
}

// 19 % of the attention output on the device and 24 % take the same time. The host is fuller than
// the device in one and emptier in the other.
TEST(Search, EqualsAreDividedByHeadroom) {
  const Problem problem = llama3_8b(std::int64_t{1} << 21);
  const SearchResult found = search(problem);
  ASSERT_TRUE(found.best);
  const double best = headroom(problem, found.best->usage);
  for (const Candidate& one : found.front) {
    if (static_cast<double>(one.nanoseconds) > static_cast<double>(found.best->nanoseconds))
      continue;
    EXPECT_LE(headroom(problem, one.usage), best) << in_words(problem, one.strategy);
    EXPECT_GE(static_cast<double>(one.nanoseconds) * 1.001,
              static_cast<double>(found.best->nanoseconds));
  }
}

// A step has the sequences that were asked for, however they are divided.
TEST(Search, HoldsTheBatch) {
  const Problem problem = timed_problem(tiny_llama(), 4, 96);
  for (const std::int64_t batch : {1, 2, 4, 6}) {
    Pins pins;
    pins.batch = batch;
    const SearchResult found = search(problem, pins);
    ASSERT_TRUE(found.best);
    for (const Candidate& one : found.front) {
      EXPECT_EQ(one.strategy.mesh.replicas * one.strategy.micro_batches, batch);
    }
  }
  Pins pins;
  pins.batch = 6;
  pins.data_parallel = 2;
  EXPECT_EQ(search(problem, pins).best->strategy.micro_batches, 3);
  pins.data_parallel = 4;
  EXPECT_THROW(static_cast<void>(search(problem, pins)), InputError);
}

// Partial results cost bytes that no arithmetic hides: every piece of a library's tile adds to the
// earlier results of its queries and keys, and every tile of the feed-forward adds to the gradients
// of its weights.
Problem of_a_library(std::int64_t seq_len) {
  Problem problem = llama3_8b(seq_len);
  problem.cluster.attention = AttentionKernels::cudnn;
  problem.documents = false;
  return problem;
}

TEST(Search, PartialResultsFavourLongTiles) {
  const Problem problem = of_a_library(std::int64_t{1} << 20);
  const Strategy best = search(problem).best->strategy;
  EXPECT_GE(geometry(problem, best).chunk_rows, 65536);
  const Strategy whole = resident_keys(problem, spilled(problem, 1, 65536));
  ASSERT_TRUE(whole.tiles.long_tiles);
  Strategy pieces = whole;
  pieces.tiles.long_tiles = false;
  const Machine machine(problem.cluster, RateEnd::typical);
  EXPECT_LT(step_nanoseconds(problem, whole, machine), step_nanoseconds(problem, pieces, machine));
}

TEST(Search, PartialResultsFavourLongTilesOfTheFeedForward) {
  const Problem problem = of_a_library(std::int64_t{1} << 17);
  const std::int64_t rows = search(problem).best->strategy.tiles.ffn_rows;
  EXPECT_TRUE(rows == 0 || rows >= 8192) << rows;
}

// Budgets have no default, and a problem without them must not look infeasible.
TEST(Search, RefusesBudgetsThatNobodySet) {
  Problem problem = timed_problem(tiny_llama(), 2, 64);
  problem.host_budget = {};
  try {
    static_cast<void>(search(problem));
    FAIL() << "expected an InputError";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("expected more than 0, found"), std::string::npos);
  }
}

TEST(Search, TheFloorIsBelowEverySimulation) {
  const Problem problem = timed_problem(tiny_llama(), 2, 256);
  const Machine machine(problem.cluster, RateEnd::typical);
  Strategy strategy = spilled(problem, 1, 64);
  for (const Lever& lever : levers()) {
    for (const Change& change : lever.changes(problem, strategy)) {
      EXPECT_LE(compute_floor(problem, change.strategy, machine),
                step_nanoseconds(problem, change.strategy, machine))
          << change.words;
    }
  }
}

// In a ring, one chunk gives the last of four ranks 7 of the 16 parts of the causal half.
TEST(Search, TheFloorFollowsTheLastRankOfARing) {
  Problem problem = timed_problem(tiny_llama(), 4, 4096);
  problem.cluster.rates.matmul = {1e18, 1e18, 1e18};  // so that attention is nearly all
  const Machine machine(problem.cluster, RateEnd::typical);
  const auto floor = [&](std::int64_t ring, std::int64_t tokens, Layout layout) {
    Strategy strategy = with_ring(spilled(problem, 1, tokens), ring);
    strategy.layout = layout;
    const std::int64_t least = compute_floor(problem, strategy, machine);
    EXPECT_LE(least, step_nanoseconds(problem, strategy, machine));
    return static_cast<double>(least);
  };
  const double whole = floor(1, 4096, Layout::interleaved);
  const double chunks = floor(1, 1024, Layout::interleaved);
  EXPECT_NEAR(floor(4, 4096, Layout::interleaved) / whole, 4 * 7.0 / 16, 0.01);
  EXPECT_NEAR(floor(4, 1024, Layout::interleaved) / chunks, 1 + 0.75 / 4, 0.01);
  EXPECT_NEAR(floor(4, 1024, Layout::zigzag) / chunks, 1, 0.01);
}

// Skipping periods is exact. The search times a sketch without edges. Edges of a block serve all
// its calls, so some calls wait for more than they need, and the full step is never faster.
TEST(Search, TheAnswerInFullEqualsItsExtrapolation) {
  const Problem problem = timed_problem(tiny_llama(), 2, 512);
  const SearchResult found = search(problem);
  ASSERT_TRUE(found.best);
  const Plan plan = make_plan(problem, found.best->strategy);
  EXPECT_LE(plan.usage.device, found.best->usage.device);
  const Schedule& schedule = plan.lowered.schedule.schedule();
  SimulationOptions whole;
  whole.skip_periods = false;
  const Machine machine(problem.cluster, RateEnd::typical);
  EXPECT_EQ(simulate(schedule, schedule.train, machine, whole).nanoseconds,
            plan.simulation.nanoseconds);
  EXPECT_GE(plan.simulation.nanoseconds, found.best->nanoseconds);
  EXPECT_LE(static_cast<double>(plan.simulation.nanoseconds),
            1.005 * static_cast<double>(found.best->nanoseconds));
}

// A search is given the room that placement saves on its answer, which is not saved on every other.
TEST(Search, EveryPlanOfTheFrontFits) {
  std::size_t plans = 0;
  for (const std::int64_t ranks : {1, 2}) {
    for (const std::int64_t device_kib : {600, 1200, 1800}) {
      for (Problem problem :
           {timed_problem(tiny_llama(), ranks, 512), timed_problem(tiny_gpt(), ranks, 256)}) {
        problem.device_budget = Bytes{device_kib << 10};
        problem.host_budget = Bytes{std::int64_t{8} << 20};
        for (const Candidate& one : search(problem).front) {
          ++plans;
          EXPECT_TRUE(within(problem, one.usage))
              << device_kib << " KiB, " << ranks << " ranks: " << in_words(problem, one.strategy);
        }
      }
    }
  }
  EXPECT_GT(plans, 12U);
}

TEST(Search, TheFrontIsSortedAndUnbeaten) {
  Problem problem = timed_problem(tiny_llama(), 2, 512);
  problem.device_budget = Bytes{std::int64_t{4} << 20};
  const std::vector<Candidate> front = search(problem).front;
  ASSERT_GT(front.size(), 1U);
  for (std::size_t i = 1; i < front.size(); ++i) {
    EXPECT_LE(cost(front[i - 1]), cost(front[i]));
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_TRUE(front[i].usage.device < front[j].usage.device ||
                  front[i].usage.host_node < front[j].usage.host_node);
    }
  }
}

// Comparisons and sweeps need only the answer. Other budgets and methods were asked before.
TEST(Search, TheAnswerIsTheSameWithoutTheFrontAndAfterOtherSearches) {
  for (const std::int64_t mib : {1, 2, 4}) {
    Problem problem = timed_problem(tiny_llama(), 2, 512);
    problem.host_budget = Bytes{std::int64_t{8} << 20};
    problem.device_budget = Bytes{mib << 20};
    const SearchResult whole = search(problem);
    for (const Method* method : methods()) {
      const Pins pins{method, {}, {}};
      if (!splits(problem, pins).empty()) search(problem, pins);
    }
    const SearchResult again = search(problem, {}, {.front = false});
    EXPECT_EQ(again.best->strategy, whole.best->strategy) << mib;
    EXPECT_EQ(again.best->usage, whole.best->usage) << mib;
    EXPECT_EQ(again.best->nanoseconds, whole.best->nanoseconds) << mib;
    EXPECT_EQ(again.simulated, 0) << mib;
  }
}

TEST(Search, HoldsItsPins) {
  const Problem problem = timed_problem(tiny_llama(), 2, 256);
  EXPECT_EQ(
      geometry(problem, search(problem, {method_named("ulysses"), {}, {}}).best->strategy).chunks,
      1);
  EXPECT_GT(
      geometry(problem, search(problem, {method_named("fpdt"), {}, {}}).best->strategy).chunks, 1);
  EXPECT_EQ(search(problem, {nullptr, 64, {}}).best->strategy.tiles.chunk_tokens, 64);
  const Strategy pinned = tiny_strategy(64);
  EXPECT_EQ(search(problem, {nullptr, {}, pinned}).best->strategy, pinned);
  EXPECT_THROW(search(problem, {nullptr, 33, {}}), InputError);
}

// Floors know no waits, so they are below a bound that no start comes near.
TEST(Search, LeavesWhatIsFarSlowerThanItsBound) {
  Problem problem = timed_problem(tiny_llama(), 2, 256);
  problem.cluster.rates.link = {1e6, 1e6, 1e6};
  Estimates estimates(problem);
  const Candidate best = climb(problem, {}, {}, estimates).best.value();
  SearchEffort effort;
  effort.bound = best.nanoseconds;
  EXPECT_EQ(climb(problem, {}, effort, estimates).best.value().nanoseconds, best.nanoseconds);
  effort.bound = best.nanoseconds / 3;
  ASSERT_LT(compute_floor(problem, best.strategy, estimates.machine()), effort.bound);
  const SearchResult none = climb(problem, {}, effort, estimates);
  EXPECT_FALSE(none.best);
  EXPECT_EQ(none.candidates, 0);
}

class AllRegions : public testing::TestWithParam<SmallCase> {};

// The answer fits if that of a method does, and it is as fast, up to the search's indifference.
TEST_P(AllRegions, ContainTheAnswer) {
  const SmallCase& one = GetParam();
  Problem problem = timed_problem(tiny_llama(), one.ranks, one.seq_len);
  problem.device_budget = Bytes{one.device_kib << 10};
  problem.host_budget = Bytes{one.host_kib << 10};
  const SearchResult found = search(problem);
  for (const Method* method : methods()) {
    Pins pins;
    pins.method = method;
    if (splits(problem, pins).empty()) continue;
    const SearchResult pinned = search(problem, pins);
    if (!pinned.best) continue;
    ASSERT_TRUE(found.best) << method->name;
    EXPECT_LE(cost(*found.best), (1 + SearchEffort{}.indifference) * cost(*pinned.best))
        << method->name;
  }
}

// On two ranks, less than 400 KiB of the host are left for tensors, so nearly all stay on the
// device.
INSTANTIATE_TEST_SUITE_P(Budgets, AllRegions,
                         testing::Values(SmallCase{"Roomy", 1, 512, 10000, 10000},
                                         SmallCase{"Even", 1, 128, 600, 800},
                                         SmallCase{"TightHost", 1, 128, 500, 200},
                                         SmallCase{"OnlyOnTheDevice", 2, 512, 10000, 400},
                                         SmallCase{"TwoRanks", 2, 512, 1500, 1600},
                                         SmallCase{"TightDevice", 2, 512, 600, 1600},
                                         SmallCase{"NoneThatTheHeadsAllow", 3, 512, 1500, 1600},
                                         SmallCase{"FourRanks", 4, 512, 1000, 1600}),
                         [](const auto& which) { return std::string(which.param.name); });

// Spilled strategies need too much of the host, others too much of the device before placement.
TEST(Search, FindsTheOnlyDivisionThatFits) {
  Problem problem = timed_problem(tiny_llama(), 2, 512);
  problem.device_budget = Bytes{std::int64_t{700} << 10};
  problem.host_budget = Bytes{std::int64_t{400} << 10};
  const SearchResult found = search(problem);
  ASSERT_TRUE(found.best);
  EXPECT_TRUE(within(problem, found.best->usage));
  EXPECT_FALSE(found.shortage);
}

TEST(Search, SaysWhatBindsAndHowFarItGoes) {
  Problem problem = timed_problem(tiny_llama(), 2, 4096);
  problem.device_budget = Bytes{std::int64_t{2} << 20};
  problem.host_budget = 2 * loading_bytes(problem.model) + Bytes{std::int64_t{100} << 10};
  const SearchResult found = search(problem);
  ASSERT_FALSE(found.best);
  EXPECT_EQ(found.shortage->binding, Binding::host);
  EXPECT_GT(found.shortage->need, problem.host_budget);
  // Few layers first: what is placed in whole is remembered.
  const std::int64_t by_few_layers = longest_sequence(problem, {}, {}, true);
  const std::int64_t longest = longest_sequence(problem, {});
  ASSERT_GT(longest, 0);
  EXPECT_EQ(by_few_layers, longest);
  problem.seq_len = longest;
  EXPECT_TRUE(search(problem).best.has_value());
  problem.seq_len = longest + longest / 32 + 2;
  EXPECT_FALSE(any_fit(problem, {}));
  problem.device_budget = Bytes{1024};
  EXPECT_EQ(search(problem).shortage->binding, Binding::device);
}

// Whoever waits hears of every stage, never of more than all of it.
TEST(Search, SaysHowFarItIs) {
  using Stage = SearchProgress::Stage;
  Problem problem = timed_problem(tiny_llama(), 2, 512);
  problem.device_budget = Bytes{std::int64_t{2} << 20};
  std::map<Stage, std::int64_t> heard;
  const OnProgress listen = [&](const SearchProgress& now) {
    ++heard[now.stage];
    EXPECT_GE(now.done, 0);
    EXPECT_LT(now.done, now.total) << static_cast<int>(now.stage);
  };
  const SearchResult found = search(problem, {}, {.progress = listen});
  for (const Stage stage : {Stage::starts, Stage::levers, Stage::plans}) {
    EXPECT_GT(heard[stage], 1) << static_cast<int>(stage);
  }
  EXPECT_EQ(found.best->strategy, search(problem).best->strategy);
  static_cast<void>(worth(problem, found.best->strategy, listen));
  EXPECT_EQ(heard[Stage::worth], static_cast<std::int64_t>(levers().size()));
  static_cast<void>(ladder(problem, spilled(problem, 1, 64), found.best->strategy, listen));
  EXPECT_GT(heard[Stage::rungs], 1);
  problem.host_budget = 2 * loading_bytes(problem.model) + Bytes{std::int64_t{400} << 10};
  SearchProgress last;
  const std::int64_t longest = longest_sequence(problem, {}, [&](const SearchProgress& now) {
    EXPECT_EQ(now.done, last.done + 1);
    EXPECT_GE(now.longest, last.longest);
    last = now;
  });
  EXPECT_GE(last.longest, longest);
  EXPECT_GT(last.done, 5);
}

TEST(Search, IsTheSameTwice) {
  Problem problem = timed_problem(tiny_llama(), 2, 512);
  problem.device_budget = Bytes{std::int64_t{2} << 20};
  EXPECT_EQ(search(problem).best->strategy, search(problem).best->strategy);
}

// Chunks of less than a 64th of a sequence hardly save memory, so the search has none, unless
// nothing else fits.
TEST(Search, ChunksAreShorterWhereNothingElseFits) {
  Problem problem = test::llama3_8b(1200000);
  const std::int64_t usual = chunk_lengths(problem, 4, 1, 1).front();
  std::optional<Strategy> last;
  for (std::int64_t gibi = 40; gibi > 0; --gibi) {
    problem.device_budget = Bytes{gibi << 30};
    std::optional<Strategy> found = any_fit(problem, {});
    if (!found) break;
    EXPECT_TRUE(fits(problem, *found)) << gibi;
    last = std::move(found);
  }
  ASSERT_TRUE(last);
  EXPECT_LT(last->tiles.chunk_tokens, usual);
  EXPECT_GE(4 * last->tiles.chunk_tokens, usual);
}

}  // namespace
}  // namespace fpdt::test
