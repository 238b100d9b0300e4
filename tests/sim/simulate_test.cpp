// Real schedules on the clock: skipping changes nothing, versions imply the same waits as edges,
// and the step lies between its bounds.
#include "fpdt/sim/simulate.h"

#include <algorithm>
#include <numeric>
#include <string>

#include <gtest/gtest.h>

#include "fpdt/plan/lowering/lower_ops.h"
#include "fpdt/schedule/depend.h"
#include "fpdt/schedule/text.h"
#include "fpdt/spec/edits.h"

#include "choices.h"
#include "problems.h"

namespace fpdt {
namespace {

using Waits = SimulationOptions::Waits;

void expect_same(const Simulation& one, const Simulation& other, const std::string& what) {
  EXPECT_EQ(one.nanoseconds, other.nanoseconds) << what;
  EXPECT_EQ(one.busy, other.busy) << what;
  EXPECT_EQ(one.kinds, other.kinds) << what;
  EXPECT_TRUE(one.calls == other.calls) << what;
  EXPECT_EQ(one.ops, other.ops) << what;
  EXPECT_EQ(one.flops, other.flops) << what;
}

Simulation run(const Schedule& schedule, const Machine& machine, Waits waits, bool skip) {
  SimulationOptions options;
  options.waits = waits;
  options.skip_periods = skip;
  return simulate(schedule, schedule.train, machine, options);
}

Schedule with_edges(const test::Choice& choice) {
  Schedule schedule = lower_ops(choice.problem, choice.strategy);
  depend(schedule);
  return schedule;
}

constexpr std::uint32_t kSeedsOfCase = 20;

void expect_skipping_changes_nothing(std::uint32_t seed, int& skipped) {
  const test::Choice choice = test::random_choice(seed);
  const Machine machine(choice.problem.cluster, RateEnd::typical);
  const Schedule schedule = with_edges(choice);
  for (const Waits waits : {Waits::edges, Waits::hazards}) {
    const Simulation all = run(schedule, machine, waits, false);
    const Simulation some = run(schedule, machine, waits, true);
    EXPECT_EQ(all.simulated, all.ops);
    expect_same(some, all, "seed " + std::to_string(seed));
    if (some.simulated < some.ops) ++skipped;
  }
}

class Random : public testing::TestWithParam<std::uint32_t> {};

TEST_P(Random, SkippingChangesNothing) {
  int skipped = 0;
  for (std::uint32_t i = 0; i < kSeedsOfCase; ++i) {
    expect_skipping_changes_nothing(GetParam() * kSeedsOfCase + i, skipped);
  }
  EXPECT_GT(skipped, static_cast<int>(kSeedsOfCase));
}

// Gathers run far ahead: their calls begin before the periods that are left out and end after them.
TEST(Simulate, SkippingLeavesTimesOfCallsInProgress) {
  int skipped = 0;
  for (const std::uint32_t seed : {1881U, 2837U, 3763U, 4979U, 5151U}) {
    expect_skipping_changes_nothing(seed, skipped);
  }
  EXPECT_EQ(skipped, 10);
}

// A static edge holds in every call of its block, even where one of them could do without it.
TEST_P(Random, EdgesWaitForAllThatVersionsDemand) {
  for (std::uint32_t i = 0; i < kSeedsOfCase; ++i) {
    const std::uint32_t seed = GetParam() * kSeedsOfCase + i;
    test::Choice choice = test::random_choice(seed);
    // Interference would let a step that waits longer end sooner.
    choice.problem.cluster.rates.interference = {};
    const Machine machine(choice.problem.cluster, RateEnd::typical);
    const Schedule schedule = with_edges(choice);
    const Simulation edges = run(schedule, machine, Waits::edges, true);
    const Simulation hazards = run(schedule, machine, Waits::hazards, true);
    EXPECT_GE(edges.nanoseconds, hazards.nanoseconds) << "seed " << seed;
    EXPECT_EQ(edges.busy, hazards.busy) << "seed " << seed;
  }
}

TEST_P(Random, LiesBetweenItsBounds) {
  for (std::uint32_t i = 0; i < kSeedsOfCase; ++i) {
    const std::uint32_t seed = GetParam() * kSeedsOfCase + i;
    test::Choice choice = test::random_choice(seed);
    const Machine machine(choice.problem.cluster, RateEnd::typical);
    const Schedule schedule = with_edges(choice);
    const Simulation simulation = run(schedule, machine, Waits::edges, true);
    EXPECT_GE(simulation.nanoseconds, lower_bound(schedule, schedule.train, machine))
        << "seed " << seed;
    // Some lane runs at every moment. Sums round once per kind.
    EXPECT_LE(simulation.nanoseconds,
              std::accumulate(simulation.busy.begin(), simulation.busy.end(), std::int64_t{4}))
        << "seed " << seed;
    std::int64_t ops = 0;
    for (const KindTime& kind : simulation.kinds) ops += kind.ops;
    EXPECT_EQ(ops, simulation.ops) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Clock, Random, testing::Range(0U, 8U));

Problem llama_8b(std::int64_t seq_len) {
  Problem problem = test::llama3_8b(seq_len);
  problem.cluster.rates = test::a100_rates();
  return problem;
}

void expect_layers_repeat(const test::Choice& choice, double share) {
  const Machine machine(choice.problem.cluster, RateEnd::typical);
  const Schedule schedule = with_edges(choice);
  const Simulation all = run(schedule, machine, Waits::edges, false);
  for (const Waits waits : {Waits::edges, Waits::hazards}) {
    const Simulation some = run(schedule, machine, waits, true);
    expect_same(some, all, "8B");
    EXPECT_LT(static_cast<double>(some.simulated), share * static_cast<double>(some.ops));
  }
}

TEST(Simulate, LayersOfALargeModelRepeat) {
  expect_layers_repeat({llama_8b(1 << 20), default_strategy(llama_8b(1 << 20))}, 0.25);
}

// Inputs and the gradients in their slots have versions that move by different distances.
TEST(Simulate, LayersWhoseGradientsTakeTheSlotsOfInputsRepeat) {
  test::Choice choice{llama_8b(1 << 18), default_strategy(llama_8b(1 << 18))};
  choice.strategy.layer_gradients = LayerGradients::in_inputs;
  choice.strategy.layer_classes.front().recompute = Recompute::keep_attention;
  expect_layers_repeat(choice, 0.3);
}

// Parameters of a layer are gathered while the layer before computes, those of the last one too.
TEST(Simulate, EdgesAddNothingWhereGathersHide) {
  test::Choice choice{llama_8b(1 << 15), default_strategy(llama_8b(1 << 15))};
  choice.strategy.mesh.replicas = 4;
  choice.strategy.tiles.chunk_tokens = 1 << 15;
  choice.problem.cluster.rates.interference = {};
  const Machine machine(choice.problem.cluster, RateEnd::typical);
  const Schedule schedule = with_edges(choice);
  EXPECT_EQ(run(schedule, machine, Waits::edges, true).nanoseconds,
            run(schedule, machine, Waits::hazards, true).nanoseconds);
}

// Nor do gathers hold up the exchange of heads, which is on their lane.
TEST(Simulate, HeadsAreExchangedAsSoonAsTheyAreThere) {
  test::Choice choice{llama_8b(1 << 13), default_strategy(llama_8b(1 << 13))};
  choice.strategy.tiles.chunk_tokens = 1 << 13;
  choice.strategy = with_kept(choice.strategy, TensorClass::layer_input, 1);
  choice.problem.cluster.rates.interference = {};
  const Machine machine(choice.problem.cluster, RateEnd::typical);
  const Schedule schedule = with_edges(choice);
  constexpr std::int32_t kLayer = 5;
  SimulationOptions options;
  options.trace_call = [&](std::size_t i) {
    const Call& call = schedule.train[i];
    return call.layer == kLayer && schedule.blocks[index(call.block)].name == "forward";
  };
  const Trace trace = simulate(schedule, schedule.train, machine, options).trace;
  std::int64_t computed = -1;
  for (const Span& span : trace.spans) {
    if (trace.lanes[index(span.lane)] == "compute.0") computed = span.end;
    if (trace.lanes[index(span.lane)] != "comm.0") continue;
    EXPECT_EQ(span.begin, computed);
    break;
  }
  EXPECT_GT(computed, 0);
}

// The same positions, written by hand: a term that no rank takes past its modulus needs none.
TEST(Simulate, TermsWithoutAModulusMeanTheSame) {
  for (const std::int64_t ring : {2, 4}) {
    test::Choice choice{llama_8b(1 << 20), default_strategy(llama_8b(1 << 20))};
    choice.strategy = with_ring(choice.strategy, ring);
    choice.strategy.keys = Keys::ring;
    Schedule schedule = with_edges(choice);
    const Machine machine(choice.problem.cluster, RateEnd::typical);
    const Simulation with = run(schedule, machine, Waits::edges, true);
    int changed = 0;
    const auto widen = [&](RankExpression& e) {
      if (e.first.b == 0 || e.first.s != 0 || e.first.m * e.first.n != schedule.ranks) return;
      e.first.n = kNoModulus;
      ++changed;
    };
    for (Block& block : schedule.blocks) {
      for (Op& op : block.ops) {
        if (auto* forward = std::get_if<AttentionForward>(&op.body)) {
          widen(forward->q_first);
          widen(forward->k_first);
        } else if (auto* backward = std::get_if<AttentionBackward>(&op.body)) {
          widen(backward->q_first);
          widen(backward->k_first);
        }
      }
    }
    EXPECT_GT(changed, 0);
    const Simulation without = run(schedule, machine, Waits::edges, true);
    EXPECT_EQ(without.nanoseconds, with.nanoseconds);
    EXPECT_EQ(without.trace.rank, with.trace.rank);
  }
}

TEST(Simulate, TracesTheChosenCalls) {
  const test::Choice choice = test::random_choice(3);
  const Machine machine(choice.problem.cluster, RateEnd::typical);
  const Schedule schedule = with_edges(choice);
  SimulationOptions options;
  options.trace_call = [](std::size_t) { return true; };
  const Simulation all = simulate(schedule, schedule.train, machine, options);
  EXPECT_EQ(all.simulated, all.ops);
  ASSERT_EQ(static_cast<std::int64_t>(all.trace.spans.size()), all.ops);
  EXPECT_EQ(duration(all.trace), all.nanoseconds);
  // Calls end with their last op, and spans are in issue order.
  std::vector<std::int64_t> ends(schedule.train.size(), 0);
  std::vector<std::int64_t> lane_ends(all.trace.lanes.size(), 0);
  std::int32_t call = 0;
  for (const Span& span : all.trace.spans) {
    EXPECT_GE(span.call, call);
    call = span.call;
    std::int64_t& lane_end = lane_ends[static_cast<std::size_t>(span.lane)];
    EXPECT_GE(span.begin, lane_end);
    lane_end = span.end;
    std::int64_t& end = ends[static_cast<std::size_t>(span.call)];
    end = std::max(end, span.end);
  }
  for (std::size_t i = 0; i < ends.size(); ++i) EXPECT_EQ(ends[i], all.calls[i].end);

  // The spans of some calls equal those of the whole trace.
  const auto chosen = [](std::size_t number) { return number % 7 == 3; };
  options.trace_call = chosen;
  const Simulation some = simulate(schedule, schedule.train, machine, options);
  std::vector<Span> expected;
  for (const Span& span : all.trace.spans) {
    if (chosen(static_cast<std::size_t>(span.call))) expected.push_back(span);
  }
  EXPECT_EQ(some.trace.spans, expected);
  EXPECT_EQ(some.calls, all.calls);
}

TEST(Simulate, SkippingResumesBetweenTracedCalls) {
  const test::Choice choice{llama_8b(1 << 19), default_strategy(llama_8b(1 << 19))};
  const Machine machine(choice.problem.cluster, RateEnd::typical);
  const Schedule schedule = with_edges(choice);
  SimulationOptions options;
  const std::size_t middle = schedule.train.size() / 4;
  options.trace_call = [middle](std::size_t call) { return call == middle; };
  const Simulation some = simulate(schedule, schedule.train, machine, options);
  expect_same(some, run(schedule, machine, Waits::edges, false), "traced");
  EXPECT_LT(some.simulated, some.ops / 2);
  const Block& block = schedule.blocks[static_cast<std::size_t>(schedule.train[middle].block)];
  EXPECT_EQ(some.trace.spans.size(), block.ops.size());
}

TEST(Simulate, HalfTheRatesTakeTwiceAsLong) {
  test::Choice choice = test::random_choice(5);
  Rates& rates = choice.problem.cluster.rates;
  rates.op_seconds = rates.collective_seconds = {};
  const Schedule schedule = with_edges(choice);
  const Machine machine(choice.problem.cluster, RateEnd::typical);
  for (Rate* rate : {&rates.matmul, &rates.attention_forward, &rates.attention_backward,
                     &rates.device_bandwidth, &rates.h2d, &rates.d2h, &rates.link}) {
    rate->low /= 2;
    rate->typical /= 2;
    rate->high /= 2;
  }
  const Machine half(choice.problem.cluster, RateEnd::typical);
  const Simulation fast = run(schedule, machine, Waits::edges, true);
  const Simulation slow = run(schedule, half, Waits::edges, true);
  // Each op rounds up to a picosecond, and once more when its pace changes.
  EXPECT_NEAR(static_cast<double>(slow.nanoseconds), 2.0 * static_cast<double>(fast.nanoseconds),
              1e-3 * 16 * static_cast<double>(fast.ops));
}

// Two ranks share queries. Later ones see more keys, so the second rank takes longer. Flops
// are the mean of both.
TEST(Simulate, FollowsTheRankWithMostAttention) {
  Schedule schedule;
  schedule.ranks = 2;
  schedule.buffers.push_back({"x",
                              MemorySpace::device,
                              Role::temporary,
                              Category::activations,
                              Dtype::f32,
                              {16, 8},
                              1,
                              0});
  AttentionForward tile;
  tile.q.buffer = tile.kv.buffer = 0;
  tile.q_rows = tile.k_rows = 16;
  tile.heads = tile.kv_heads = 1;
  tile.head_dim = 4;
  tile.q_first.first = {.b = 16, .n = 2};
  schedule.blocks.push_back({"b", {}, {{"tile", {LaneKind::compute, 0}, tile, {}}}});
  schedule.train = {{0, 0, 0, 0}};
  const Machine machine(test::random_choice(5).problem.cluster, RateEnd::typical);
  const Simulation both = simulate(schedule, schedule.train, machine);
  EXPECT_EQ(both.trace.rank, 1);
  constexpr double kPairs[] = {16 * 17 / 2, 16 * 16};
  EXPECT_DOUBLE_EQ(std::accumulate(both.flops.begin(), both.flops.end(), 0.0),
                   4 * 4 * (kPairs[0] + kPairs[1]) / 2);
  std::get<AttentionForward>(schedule.blocks[0].ops[0].body).q_first = 16;
  const Simulation second = simulate(schedule, schedule.train, machine);
  EXPECT_EQ(both.nanoseconds, second.nanoseconds);
  EXPECT_EQ(second.trace.rank, 0);
}

// Ranks with the same tiles meet at once everywhere, so each does as one alone.
TEST_P(Random, EqualRanksTogetherTakeTheTimesOfOne) {
  for (std::uint32_t i = 0; i < kSeedsOfCase; ++i) {
    const test::Choice choice = test::random_choice(GetParam() * kSeedsOfCase + i);
    const Machine machine(choice.problem.cluster, RateEnd::typical);
    const Schedule schedule = with_edges(choice);
    SimulationOptions options;
    options.trace_call = [](std::size_t call) { return call % 5 == 1; };
    const Simulation alone = simulate(schedule, schedule.train, machine, options);
    std::int64_t rank = 0;
    for (const Simulation& one : simulate_together(schedule, schedule.train, machine, options)) {
      expect_same(one, alone, "rank " + std::to_string(rank));
      EXPECT_TRUE(one.trace.spans == alone.trace.spans) << "rank " << rank;
      EXPECT_EQ(one.trace.rank, rank++);
    }
    EXPECT_EQ(rank, schedule.ranks);
  }
}

// Gathered keys and interleaved tokens in one chunk: of two ranks the second sees most pairs.
test::Choice contiguous_ring() {
  test::Choice choice{test::timed_problem(test::tiny_llama(), 2, 512), test::tiny_strategy(512)};
  choice.strategy.mesh.ring = 2;
  choice.strategy.keys = Keys::gathered;
  // Interference would make the time of an op depend on when it runs.
  choice.problem.cluster.rates.interference = {};
  return choice;
}

TEST(Simulate, ARankWithLessAttentionIdles) {
  const test::Choice choice = contiguous_ring();
  const Machine machine(choice.problem.cluster, RateEnd::typical);
  const Schedule schedule = with_edges(choice);
  const Simulation alone = simulate(schedule, schedule.train, machine);
  const auto ranks = simulate_together(schedule, schedule.train, machine);
  ASSERT_EQ(ranks.size(), 2U);
  ASSERT_EQ(alone.trace.rank, 1);
  // The second rank never waits for the first.
  EXPECT_EQ(ranks[1].calls, alone.calls);
  EXPECT_EQ(ranks[1].nanoseconds, alone.nanoseconds);
  // Everything but attention takes both ranks the same time. The seconds of tiles differ as those
  // of their ops alone.
  std::int64_t less = 0;
  const auto light = demands(schedule, 0);
  const auto heavy = demands(schedule, 1);
  for (const Call& call : schedule.train) {
    const auto block = static_cast<std::size_t>(call.block);
    for (std::size_t op = 0; op < light[block].size(); ++op) {
      less += machine.picoseconds(heavy[block][op]) - machine.picoseconds(light[block][op]);
    }
  }
  ASSERT_GT(less, 0);
  const auto compute = static_cast<std::size_t>(LaneKind::compute);
  EXPECT_NEAR(static_cast<double>(ranks[1].busy[compute] - ranks[0].busy[compute]),
              static_cast<double>(less) / 1000, 1);
  for (std::size_t lane = 0; lane < ranks[0].busy.size(); ++lane) {
    if (lane == compute) continue;
    EXPECT_EQ(ranks[0].busy[lane], ranks[1].busy[lane]) << lane;
  }
}

// Of rings whose ranks alternate in being heavy, together they take at least as long as any alone.
TEST(Simulate, TogetherRanksTakeAtLeastAsLongAsTheHeaviest) {
  for (const Keys keys : {Keys::gathered, Keys::ring}) {
    for (const Layout layout : {Layout::interleaved, Layout::zigzag}) {
      for (const std::int64_t chunk : {512, 256, 128}) {
        test::Choice choice = contiguous_ring();
        choice.problem = test::timed_problem(test::tiny_llama(), 4, 512);
        choice.problem.cluster.rates.interference = {};
        choice.strategy = test::tiny_strategy(chunk);
        choice.strategy.mesh.ring = 4;
        choice.strategy.keys = keys;
        choice.strategy.layout = layout;
        const Machine machine(choice.problem.cluster, RateEnd::typical);
        const Schedule schedule = with_edges(choice);
        const Simulation alone = simulate(schedule, schedule.train, machine);
        std::int64_t step = 0;
        for (const Simulation& rank : simulate_together(schedule, schedule.train, machine)) {
          step = std::max(step, rank.nanoseconds);
        }
        EXPECT_GE(step, alone.nanoseconds) << word(keys) << ' ' << word(layout) << ' ' << chunk;
      }
    }
  }
}

// A step that takes years is counted in coarser ticks, with the same relative precision.
TEST(Simulate, CountsStepsOfYears) {
  test::Choice choice = test::random_choice(5);
  Rates& rates = choice.problem.cluster.rates;
  rates.op_seconds = rates.collective_seconds = {};
  const Schedule schedule = with_edges(choice);
  const Simulation fast =
      run(schedule, Machine(choice.problem.cluster, RateEnd::typical), Waits::edges, true);
  constexpr double kSlower = 1e9;
  for (Rate* rate : {&rates.matmul, &rates.attention_forward, &rates.attention_backward,
                     &rates.device_bandwidth, &rates.h2d, &rates.d2h, &rates.link}) {
    rate->low /= kSlower;
    rate->typical /= kSlower;
    rate->high /= kSlower;
  }
  const Simulation slow =
      run(schedule, Machine(choice.problem.cluster, RateEnd::typical), Waits::edges, true);
  const double ratio =
      static_cast<double>(slow.nanoseconds) / static_cast<double>(fast.nanoseconds);
  EXPECT_NEAR(ratio / kSlower, 1, 1e-3);  // of the fast step: a picosecond in an op's microsecond
  EXPECT_EQ(slow.ops, fast.ops);
  // A step that takes centuries is refused, even if no single op is too long.
  rates.op_seconds = {8e6, 8e6, 8e6};
  EXPECT_THROW(run(schedule, Machine(choice.problem.cluster, RateEnd::typical), Waits::edges, true),
               InputError);
}

}  // namespace
}  // namespace fpdt
