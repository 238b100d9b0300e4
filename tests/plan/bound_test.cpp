// No step is shorter than its bound.
#include "fpdt/plan/search/bound.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "fpdt/plan/fit.h"
#include "fpdt/plan/search/floor.h"
#include "fpdt/plan/search/search.h"

#include "drawn_steps.h"
#include "problems.h"

namespace fpdt {
namespace {

// The step in longer chunks, on a machine whose launches are nearly free, with no more memory than
// it needs. `slow`: the machine has long tiles that are slower than short ones.
DrawnStep tight(DrawnStep step, bool slow) {
  constexpr std::int64_t kLonger = 64;
  Problem& problem = step.problem;
  problem.seq_len *= kLonger;
  step.strategy.tiles.chunk_tokens *= kLonger;
  step.strategy.tiles.ffn_rows *= kLonger;
  step.strategy.tiles.loss_rows *= kLonger;
  if (problem.model.learned_positions > 0) problem.model.learned_positions = problem.seq_len;
  problem.cluster.rates = test::timed_problem(problem.model, 1, 64).cluster.rates;
  problem.cluster.rates.op_seconds = {1e-12, 1e-12, 1e-12};
  if (slow) {
    problem.cluster.rates.matmul_shares = {{1, 1}, {64, 0.5}};
    problem.cluster.rates.attention_shares = {{1, 1}, {64, 0.5}};
  }
  const Usage need = usage(problem, step.strategy);
  problem.device_budget = need.device;
  problem.host_budget = need.host_node;
  return step;
}

TEST(Bound, NoDrawnStepIsShorter) {
  std::int64_t sound = 0;
  double closest = 0;
  for (std::uint32_t seed = 0; seed < 600; ++seed) {
    const DrawnStep drawn = seed % 2 == 0 ? few_tokens(seed) : many_chunks(seed);
    if (!check(drawn.problem, drawn.strategy).empty()) continue;
    const auto [problem, strategy] = tight(drawn, seed % 5 == 0);
    if (!check(problem, strategy).empty()) continue;
    ++sound;
    const Machine machine(problem.cluster, RateEnd::typical);
    const double step = static_cast<double>(step_nanoseconds(problem, strategy, machine)) * 1e-9;
    const std::int64_t sequences = strategy.mesh.replicas * strategy.micro_batches;
    const Bound bound = bound_of(problem, strategy.storage, strategy.gradients, sequences, machine);
    EXPECT_FALSE(bound.none_fits()) << seed;
    EXPECT_LE(bound.step_seconds, step) << seed;
    closest = std::max(closest, bound.step_seconds / step);
  }
  EXPECT_GT(sound, 300);
  EXPECT_GT(closest, 0.5);  // else it says nothing
}

// Neither the bound nor the floor, whatever part of a window's tiles is the library's.
TEST(Bound, NoStepOfWindowsIsShorter) {
  ModelSpec model = test::tiny_llama();
  model.head_dim = 64;
  Problem problem = test::timed_problem(model, 2, 1 << 14);
  problem.cluster.row_multiple = 128;
  problem.cluster.attention = AttentionKernels::cudnn;
  problem.documents = false;
  Rates& rates = problem.cluster.rates;
  rates.op_seconds = {1e-12, 1e-12, 1e-12};
  rates.own_attention_forward = rates.own_attention_backward = {1e9, 1e9, 1e9};
  const Machine machine(problem.cluster, RateEnd::typical);
  double closest = 0;
  for (const std::int64_t window : {100, 1000, 4096, 5000, 16000}) {
    problem.model.kinds.front().window = window;
    problem.cluster.cudnn_windows = window % 1000 == 0;
    for (const std::int64_t chunk : {256, 512, 1024, 4096, 16384}) {
      Strategy strategy = spilled(problem, 1, chunk);
      strategy.storage = Storage::bf16;
      ASSERT_EQ(format_diagnostics(check(problem, strategy)), "");
      const std::int64_t step = step_nanoseconds(problem, strategy, machine);
      EXPECT_LE(compute_floor(problem, strategy, machine), step) << window << " " << chunk;
      const double bound =
          bound_of(problem, Storage::bf16, Storage::f32, 1, machine).step_seconds * 1e9;
      EXPECT_LE(bound, static_cast<double>(step)) << window << " " << chunk;
      closest = std::max(closest, bound / static_cast<double>(step));
    }
  }
  EXPECT_GT(closest, 0.7);
}

// Where parameters and gradients leave room for the optimizer's states, these pass no copy lane.
TEST(Bound, StatesMayStayWhereGradientsLeave) {
  DrawnStep step{test::timed_problem(test::tiny_llama(), 1, 8), test::tiny_strategy(8)};
  step.problem.cluster.row_multiple = 1;
  step.problem.model.layers = 16;
  step.problem.cluster.outside = {};
  step.strategy.storage = Storage::bf16;
  step.strategy.keep = {0, 0, 1};
  step.problem.device_budget = usage(step.problem, step.strategy).device;
  step.problem.cluster.rates.h2d = step.problem.cluster.rates.d2h = {1e6, 1e6, 1e6};
  const Machine machine(step.problem.cluster, RateEnd::typical);
  const double bound = bound_of(step.problem, Storage::bf16, Storage::f32, 1, machine).step_seconds;
  const auto parameters = static_cast<double>(parameter_count(step.problem.model));
  EXPECT_LT(bound, 12 * parameters / 1e6) << "it counts copies of states";
}

TEST(Bound, MoreMemoryNeverRaisesIt) {
  Problem problem = test::timed_problem(test::tiny_llama(), 2, 4096);
  const Machine machine(problem.cluster, RateEnd::typical);
  double before = std::numeric_limits<double>::infinity();
  double first = 0;
  for (std::int64_t kib = 256; kib < 1 << 16; kib *= 2) {
    problem.device_budget = problem.host_budget = Bytes{kib << 10};
    const double now = bound_of(problem, Storage::bf16, Storage::f32, 1, machine).step_seconds;
    EXPECT_LE(now, before);
    if (first == 0) first = now;
    before = now;
  }
  EXPECT_LT(before, 0.95 * first);
}

}  // namespace
}  // namespace fpdt
