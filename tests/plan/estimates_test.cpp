// Estimated times against simulated ones.
#include "fpdt/plan/search/estimates.h"

#include <cmath>

#include <gtest/gtest.h>

#include "fpdt/plan/fit.h"
#include "fpdt/plan/search/feasible.h"
#include "fpdt/plan/search/search.h"
#include "fpdt/spec/choices.h"
#include "fpdt/spec/edits.h"

#include "problems.h"

namespace fpdt {
namespace {

// Steps of many chunks, with segments, with rows that are repeated, and with all that is stored.
std::vector<Strategy> strategies_of(const Problem& problem) {
  std::vector<Strategy> all;
  for (const std::int64_t chunks : {20, 33}) {
    for (const BackwardOrder order : {BackwardOrder::q_outer, BackwardOrder::kv_outer}) {
      Strategy strategy = spilled(problem, 1, problem.seq_len / chunks / 512 * 512);
      strategy.tiles.backward_order = order;
      if (chunks == 33) strategy.layer_gradients = LayerGradients::in_inputs;
      if (chunks == 33) strategy.queries = Queries::again;
      for (const std::vector<std::int64_t>& segments : segment_shapes(problem.model.layers)) {
        strategy.segments = segments;
        for (const std::int64_t from : {std::int64_t{0}, chunks / 2}) {
          all.push_back(canonical(
              problem, with_stored_from(problem, strategy, {from, problem.model.layers})));
        }
        all.push_back(canonical(problem, with_stored(problem, strategy, {})));
      }
    }
  }
  return all;
}

void expect_close(const ModelSpec& model) {
  Problem problem = test::timed_problem(model, 2, 1 << 16);
  problem.cluster.row_multiple = 1;
  const Machine machine(problem.cluster, RateEnd::typical);
  Estimates estimates(problem);
  std::int64_t compared = 0;
  for (const Strategy& strategy : strategies_of(problem)) {
    if (!check(problem, strategy).empty()) continue;
    ++compared;
    const auto step = static_cast<double>(step_nanoseconds(problem, strategy, machine));
    const auto estimate = static_cast<double>(estimates.nanoseconds(strategy));
    EXPECT_NEAR(estimate / step, 1, 0.01) << in_words(problem, strategy);
  }
  EXPECT_GT(compared, 20);
  EXPECT_LT(estimates.simulated(), compared);
}

TEST(Estimates, AreCloseToSimulations) {
  ModelSpec model = test::tiny_llama();
  model.layers = 10;
  expect_close(model);
  // Windows of less than a chunk, and of ten chunks, alone and beside layers that see everything.
  model.kinds.front().window = 600;
  expect_close(model);
  model.kinds.front().window = 25000;
  expect_close(model);
  model.kinds.front().window = 600;
  model.kinds.front().name = "window";
  model.kinds.emplace_back(model.kinds.front());
  model.kinds.back() = {.name = "full", .window = 0, .rotary = model.kinds.front().rotary};
  model.pattern = {0, 0, 0, 0, 1};
  expect_close(model);
}

// Keys that go around all ranks of 64 nodes, or around a half of them.
TEST(Estimates, LongRingsAreCloseToSimulations) {
  Problem problem = test::timed_problem(test::tiny_llama(), 128, 1 << 16);
  problem.cluster.row_multiple = 1;
  problem.cluster.nodes = 64;
  problem.cluster.devices_per_node = 2;
  problem.cluster.rates.network = problem.cluster.rates.link;
  const Machine machine(problem.cluster, RateEnd::typical);
  Estimates estimates(problem);
  std::int64_t compared = 0;
  for (const std::int64_t replicas : {1, 2}) {
    for (const BackwardOrder order : {BackwardOrder::q_outer, BackwardOrder::kv_outer}) {
      Strategy strategy = spilled(problem, replicas, 1 << 14, 128 / replicas);
      strategy.keys = Keys::ring;
      strategy.tiles.backward_order = order;
      ASSERT_EQ(format_diagnostics(check(problem, strategy)), "");
      const auto step = static_cast<double>(step_nanoseconds(problem, strategy, machine));
      const auto estimate = static_cast<double>(estimates.nanoseconds(strategy));
      EXPECT_NEAR(estimate / step, 1, 0.01) << in_words(problem, strategy);
      ++compared;
    }
  }
  EXPECT_EQ(estimates.simulated(), 2 * compared);
}

// Three short steps say how long one of many chunks takes, whether its layers store their attention
// output or everything: not all copies of the latter are hidden.
TEST(Estimates, ManyChunksOfALargeModelAreCloseToSimulations) {
  const Problem problem = test::llama3_8b(std::int64_t{1} << 21);
  const Machine machine(problem.cluster, RateEnd::typical);
  Estimates estimates(problem);
  const std::int64_t layers = problem.model.layers;
  for (const std::int64_t chunk : {32768, 65536}) {
    for (const std::int64_t everything : {std::int64_t{0}, layers / 3, layers}) {
      for (const bool resident : {false, true}) {
        Strategy strategy = spilled(problem, 1, chunk);
        strategy.tiles.backward_order = BackwardOrder::q_outer;
        if (resident) strategy = resident_keys(problem, strategy);
        strategy = with_stored(problem, strategy, {everything, layers - everything});
        const auto step = static_cast<double>(step_nanoseconds(problem, strategy, machine));
        const auto estimate = static_cast<double>(estimates.nanoseconds(strategy));
        EXPECT_NEAR(estimate / step, 1, 0.005) << in_words(problem, strategy);
      }
    }
  }
}

}  // namespace
}  // namespace fpdt
