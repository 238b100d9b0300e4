// Complete plans: their ranges, traces, and the resource that binds.
#include "fpdt/plan/plan.h"

#include <gtest/gtest.h>

#include "problems.h"

namespace fpdt::test {
namespace {

Problem asked() {
  Problem problem = tiny_problem(tiny_llama(), 2, 128);
  problem.device_budget = problem.host_budget = problem.cluster.device_memory;
  Rates& rates = problem.cluster.rates;
  rates.peak_flops = 1e10;
  rates.matmul = rates.attention_forward = rates.attention_backward = {5e9, 4e9, 6e9};
  rates.device_bandwidth = rates.h2d = rates.d2h = rates.link = {1e9, 8e8, 2e9};
  rates.op_seconds = {1e-6, 5e-7, 2e-6};
  return problem;
}

TEST(Plan, RangesOfRatesAreRangesOfSeconds) {
  const Problem problem = asked();
  const Plan plan = make_plan(problem, tiny_strategy(32));
  const auto& [slow, typical, fast] = plan.throughput;
  EXPECT_GT(slow.step_seconds, typical.step_seconds);
  EXPECT_GT(typical.step_seconds, fast.step_seconds);
  EXPECT_LT(slow.mfu_causal, typical.mfu_causal);
  EXPECT_LT(typical.mfu_full, fast.mfu_full);
  EXPECT_EQ(plan.simulation.nanoseconds,
            static_cast<std::int64_t>(typical.step_seconds * 1e9 + 0.5));
}

TEST(Plan, TracesAWholeShortStepOrItsTellingCalls) {
  const Problem problem = asked();
  const Plan whole = make_plan(problem, tiny_strategy(32), "", 1 << 20);
  EXPECT_EQ(static_cast<std::int64_t>(whole.simulation.trace.spans.size()), whole.simulation.ops);
  const Plan some = make_plan(problem, tiny_strategy(32));
  EXPECT_FALSE(some.simulation.trace.spans.empty());
  EXPECT_LE(some.simulation.trace.spans.size(), whole.simulation.trace.spans.size());
  EXPECT_EQ(some.simulation.nanoseconds, whole.simulation.nanoseconds);
}

TEST(Plan, SaysWhatBinds) {
  Problem problem = asked();
  const Plan plan = make_plan(problem, tiny_strategy(32));
  EXPECT_EQ(binding(problem, plan), Binding::compute);
  problem.device_budget = plan.usage.device;
  EXPECT_EQ(binding(problem, plan), Binding::device);
  problem.host_budget = plan.usage.host_node;
  EXPECT_EQ(binding(problem, plan), Binding::host);
  problem = asked();
  problem.cluster.rates.h2d = problem.cluster.rates.d2h = {1e5, 1e5, 1e5};
  EXPECT_EQ(binding(problem, make_plan(problem, tiny_strategy(32))), Binding::copies);
  problem = asked();
  problem.cluster.rates.link = {1e4, 1e4, 1e4};
  EXPECT_EQ(binding(problem, make_plan(problem, tiny_strategy(32))), Binding::collectives);
}

// Segments of several layers repeat forward once more, so memory is why a plan has them, however
// much of it is left.
TEST(Plan, SegmentsAreForWantOfMemory) {
  const Problem problem = llama3_8b(std::int64_t{1} << 22);
  Strategy strategy = spilled(problem, 1, 1 << 17, 1);
  strategy.tiles.backward_order = BackwardOrder::q_outer;
  EXPECT_FALSE(need_of_shorter_segments(problem, strategy)) << "there are none";
  strategy.segments = {2};
  const Plan plan = make_plan(problem, strategy);
  EXPECT_LT(plan.usage.device.value, problem.device_budget.value / 10 * 9);
  EXPECT_LT(plan.usage.host_node.value, problem.host_budget.value / 10 * 9);
  const auto need = need_of_shorter_segments(problem, strategy);
  ASSERT_TRUE(need);
  EXPECT_EQ(need->memory, Binding::host);
  EXPECT_GT(need->need, need->have);
  EXPECT_EQ(binding(problem, plan), Binding::host);
  Problem roomier = problem;
  roomier.host_budget = Bytes{std::int64_t{1} << 42};
  EXPECT_FALSE(need_of_shorter_segments(roomier, strategy)) << "they fit";
}

}  // namespace
}  // namespace fpdt::test
