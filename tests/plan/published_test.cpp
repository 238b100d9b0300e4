// The published policy is sound for every number of ranks, in its own proportions. The ladder leads
// from it to an answer.
#include "fpdt/plan/methods/published.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "fpdt/plan/search/ladder.h"
#include "fpdt/plan/search/search.h"

#include "problems.h"

namespace fpdt::test {
namespace {

TEST(Published, HasItsProportions) {
  for (const std::int64_t ranks : {1, 2, 4}) {
    Problem problem = tiny_problem(tiny_llama(), ranks, 1 << 20);
    problem.cluster.row_multiple = 128;
    const Strategy strategy = method_named("fpdt")->published(problem, 1);
    EXPECT_TRUE(check(problem, strategy).empty());
    EXPECT_EQ(strategy.mesh.replicas, 1);
    EXPECT_EQ(strategy.tiles.chunk_tokens, 65536);
    EXPECT_EQ(strategy.tiles.ffn_rows * 2 * ranks, strategy.tiles.chunk_tokens);
    EXPECT_EQ(strategy.tiles.loss_rows * 32 * ranks, strategy.tiles.chunk_tokens);
    EXPECT_EQ(strategy.tiles.backward_order, BackwardOrder::kv_outer);
    EXPECT_FALSE(strategy.copies.duplex);
    EXPECT_FALSE(strategy.copies.overlap_all_to_all);
    EXPECT_EQ(strategy.segments, std::vector<std::int64_t>{1});
    EXPECT_EQ(stored_layers(problem, strategy), StoredLayers{});
    EXPECT_EQ(strategy.extent, Extent::whole);
    LayerClass layers;
    layers.keep[static_cast<std::size_t>(TensorClass::layer_gradient)] = 1;
    EXPECT_EQ(strategy.layer_classes, std::vector{layers});
    EXPECT_EQ(canonical(problem, strategy), strategy);
  }
}

TEST(Published, UlyssesIsOneChunkWhoseInputsAreOffloaded) {
  const Problem problem = tiny_problem(tiny_llama(), 4, 1 << 16);
  const Strategy strategy = method_named("ulysses")->published(problem, 1);
  EXPECT_TRUE(check(problem, strategy).empty());
  EXPECT_EQ(geometry(problem, strategy).chunks, 1);
  EXPECT_EQ(strategy.tiles.ffn_rows, 0);
  EXPECT_EQ(strategy.tiles.loss_rows, 0);
  const LayerClass& layers = strategy.layer_classes.front();
  EXPECT_EQ(layers.recompute, Recompute::from_input);
  EXPECT_EQ(layers.kept(TensorClass::layer_input), 0);
  EXPECT_EQ(layers.kept(TensorClass::kv), 1);
}

// Gathered keys of all layers stay on the device, as do parameters and states of the whole model.
TEST(Published, LssIsOneChunkThatStoresEverything) {
  const Problem problem = tiny_problem(tiny_llama(), 6, 1000);  // four heads
  const Strategy strategy = method_named("lss")->published(problem, 2);
  EXPECT_TRUE(check(problem, strategy).empty());
  const Geometry shape = geometry(problem, strategy);
  EXPECT_EQ(shape.ring, 6);
  EXPECT_EQ(shape.chunks, 1);
  EXPECT_EQ(shape.local_tokens(), 167);
  EXPECT_EQ(strategy.keys, Keys::gathered);
  EXPECT_EQ(strategy.zero, 0);
  EXPECT_FALSE(strategy.offloads_states());
  EXPECT_EQ(stored_layers(problem, strategy), (StoredLayers{problem.model.layers, 0}));
  EXPECT_EQ(predict(problem, strategy).host_pinned, Bytes{0});
}

TEST(Published, ContextParallelismIsTwoRunsOfARank) {
  const Problem problem = tiny_problem(tiny_llama(), 6, 1000);
  const Strategy strategy = method_named("allgather-cp")->published(problem, 1);
  EXPECT_TRUE(check(problem, strategy).empty());
  const Geometry shape = geometry(problem, strategy);
  EXPECT_EQ(shape.ring, 6);
  EXPECT_EQ(shape.chunks, 2);
  EXPECT_EQ(strategy.zero, 2);
  EXPECT_EQ(stored_layers(problem, strategy), StoredLayers{});
  EXPECT_EQ(predict(problem, strategy).host_pinned, Bytes{0});
}

// Either region has any number of ranks, but only whole rings of them. One chunk is both, and has
// the name of the special one.
TEST(Methods, OfGatheredKeysHaveOneRing) {
  const Problem problem = tiny_problem(tiny_llama(), 6, 1 << 10);
  const Method& lss = *method_named("lss");
  const Method& context = *method_named("allgather-cp");
  const Strategy whole = spilled(problem, 1, 1026, 6);
  EXPECT_TRUE(lss.holds(problem, whole));
  EXPECT_TRUE(context.holds(problem, whole));
  EXPECT_EQ(method_of(problem, whole), &lss);
  const Strategy chunks = spilled(problem, 1, 258, 6);
  EXPECT_FALSE(lss.holds(problem, chunks));
  EXPECT_EQ(method_of(problem, chunks), &context);
  const Strategy grid = spilled(problem, 1, 258, 3);
  EXPECT_FALSE(context.holds(problem, grid));
  EXPECT_EQ(method_of(problem, grid), nullptr);
  Strategy around = chunks;
  around.keys = Keys::ring;
  EXPECT_FALSE(context.holds(problem, around));
  around.tiles.chunk_tokens = whole.tiles.chunk_tokens;
  EXPECT_FALSE(lss.holds(problem, around));
  EXPECT_EQ(lss.entered(problem, whole), whole);
  EXPECT_EQ(context.entered(problem, chunks), chunks);
  EXPECT_TRUE(context.holds(problem, spilled(problem, 2, 258, 3)));
}

TEST(Methods, HoldWhatTheyPublish) {
  EXPECT_EQ(method_named("pipelines"), nullptr);
  for (const Method* method : methods()) {
    EXPECT_EQ(method_named(method->name), method);
    EXPECT_FALSE(method->source.empty());
    for (const std::int64_t batch : {1, 4}) {
      const int ranks = method->sharing == Sharing::grid ? 4 : 2;
      const Problem problem = tiny_problem(tiny_llama(), ranks, 1 << 20);
      const Strategy strategy = method->published(problem, batch);
      EXPECT_TRUE(check(problem, strategy).empty()) << method->name;
      EXPECT_EQ(method_of(problem, strategy), method);
      EXPECT_EQ(strategy.mesh.replicas * strategy.micro_batches, batch);
    }
  }
}

// The comparison of the FPDT paper, and all-to-alls in nodes with rings across them.
TEST(Methods, OfGridsFormTheirSides) {
  Problem problem = tiny_problem(llama3_8b(1).model, 8, 1 << 17);
  const Strategy shared = method_named("megatron")->published(problem, 1);
  EXPECT_EQ(shared.mesh, (Mesh{1, 1, 0, 8}));
  EXPECT_EQ(geometry(problem, shared).chunks, 1);
  problem.cluster = with_devices(problem.cluster, 8);
  problem.cluster.devices_per_node = 4;
  problem.cluster.nodes = 2;
  const Strategy rings = method_named("usp")->published(problem, 1);
  EXPECT_EQ(rings.mesh, (Mesh{1, 2, 0, 1}));
  EXPECT_EQ(rings.keys, Keys::ring);
  EXPECT_TRUE(geometry(problem, rings).zigzag);
  Pins pins;
  pins.method = method_named("usp");
  EXPECT_EQ(splits(problem, pins).size(), 2U);  // rings of two and of four
  problem = tiny_problem(llama3_8b(1).model, 2, 1 << 17);
  EXPECT_TRUE(splits(problem, pins).empty());
  pins.method = method_named("megatron");
  EXPECT_EQ(splits(problem, pins).front().tensor, 2);
  problem.model.feed_forward += 1;
  EXPECT_TRUE(splits(problem, pins).empty());
}

// Bytes and seconds of the waste come on top of those of the schedule, which has none of it.
TEST(Published, AddsItsWaste) {
  const Problem problem = timed_problem(tiny_llama(), 2, 1024);
  const Method& fpdt = *method_named("fpdt");
  const Plan plan = published_plan(problem, fpdt, fpdt.published(problem, 1)).plan;
  const Plan bare = make_plan(problem, plan.strategy);
  EXPECT_EQ(plan.strategy, fpdt.published(problem, 1));
  const std::int64_t rows = geometry(problem, plan.strategy).local_tokens();
  const std::int64_t hidden = 2 * rows * problem.model.hidden;
  const std::int64_t tables =
      fpdt.waste.rotary_bytes * 1024 * problem.model.rotary_dim(problem.model.kinds.front());
  EXPECT_GT(tables, 0);
  EXPECT_EQ(plan.usage.device - bare.usage.device,
            Bytes{fpdt.waste.hidden_tensors * hidden + tables});
  EXPECT_EQ(plan.usage.arena - bare.usage.arena, plan.usage.device - bare.usage.device);
  const auto layers = static_cast<double>(problem.model.layers);
  const double copies = fpdt.waste.pageable_copies * 2 * layers * static_cast<double>(hidden) / 2e8;
  for (std::size_t i = 0; i < plan.throughput.size(); ++i) {
    const Throughput& now = plan.throughput[i];
    const Throughput& before = bare.throughput[i];
    EXPECT_NEAR(now.step_seconds - before.step_seconds,
                fpdt.waste.host_seconds * 3 * layers + copies, 1e-9);
    EXPECT_NEAR(now.mfu_full * now.step_seconds, before.mfu_full * before.step_seconds, 1e-12);
  }
  const Method& ulysses = *method_named("ulysses");
  EXPECT_EQ(published_plan(problem, ulysses, ulysses.published(problem, 1)).plan.usage.device -
                make_plan(problem, ulysses.published(problem, 1)).usage.device,
            Bytes{8 * rows * problem.model.vocabulary});
}

// 1024 tokens of two ranks, 4 heads, 2 layers: 5 bytes of each of 512 x 1024 x 4 scores of a layer.
// Where forward is repeated, one layer has scores at a time. They pass device memory twice.
TEST(Published, WastesScores) {
  const Problem problem = timed_problem(tiny_llama(), 2, 1024);
  const Method& lss = *method_named("lss");
  ASSERT_EQ(problem.model.layers, 2);
  Strategy strategy = lss.published(problem, 3);
  const Bytes layer{std::int64_t{5} * 4 * 512 * 1024};
  Wasted added = published_plan(problem, lss, strategy).wasted;
  EXPECT_EQ(added.device, 2 * layer);
  EXPECT_DOUBLE_EQ(added.step_seconds, 3 * 2 * 2 * static_cast<double>(layer.value) /
                                           problem.cluster.rates.device_bandwidth.typical);
  strategy.layer_classes.front().recompute = Recompute::from_input;
  added = published_plan(problem, lss, canonical(problem, strategy)).wasted;
  EXPECT_EQ(added.device, layer);
}

// Layers that store everything, on the device, repeat no forward and copy no input.
TEST(Published, WastesNothingOnWhatIsNotDone) {
  const Problem problem = timed_problem(tiny_llama(), 2, 1024);
  const Method& ulysses = *method_named("ulysses");
  Strategy strategy = ulysses.published(problem, 1);
  strategy.layer_classes.front().recompute = Recompute::keep_all;
  strategy.layer_classes.front().keep.fill(1);
  const Wasted added = published_plan(problem, ulysses, strategy).wasted;
  EXPECT_DOUBLE_EQ(added.step_seconds,
                   ulysses.waste.host_seconds * 2 * static_cast<double>(problem.model.layers));
}

// Host time counts rows of tiles, and every block of pinned memory that does not live through the
// step is rounded.
TEST(Published, WastesByRowsAndBlocks) {
  Problem problem = timed_problem(tiny_llama(), 2, 4 * 65536 * 3);
  problem.cluster.row_multiple = 128;
  const Method& fpdt = *method_named("fpdt");
  Strategy strategy = fpdt.published(problem, 1);
  const auto seconds = [&] {
    const Lowered lowered = lower(problem, strategy);
    return wasted(problem, fpdt, strategy, lowered.schedule.schedule()).step_seconds;
  };
  const double twelve = seconds();
  strategy.tiles.chunk_tokens *= 2;
  EXPECT_NEAR(twelve - seconds(),
              fpdt.waste.host_seconds * 3 * 6 * static_cast<double>(problem.model.layers), 1e-9);
  strategy.tiles.chunk_tokens = 65536 * 3;
  const Lowered lowered = lower(problem, strategy);
  const Wasted rounded = wasted(problem, fpdt, strategy, lowered.schedule.schedule());
  Bytes expected;
  for (const Buffer& buffer : lowered.schedule.schedule().buffers) {
    if (buffer.space != MemorySpace::host_pinned || buffer.name == "layer_input_host") continue;
    expected += Bytes{buffer.bytes().value / 3};  // three quarters of each are used
  }
  EXPECT_GT(expected, Bytes{0});
  EXPECT_EQ(rounded.host_rank, expected);
}

// One chunk is Ulysses only while attention leaves nothing on the host. What layers store for
// backward may be there.
TEST(Methods, UlyssesKeepsAttentionOnTheDevice) {
  const Problem problem = timed_problem(tiny_llama(), 2, 256);
  const Method& ulysses = *method_named("ulysses");
  for (const BackwardOrder order : {BackwardOrder::kv_outer, BackwardOrder::q_outer}) {
    Strategy spilled_chunk = spilled(problem, 1, 256);
    spilled_chunk.tiles.backward_order = order;
    EXPECT_EQ(method_of(problem, spilled_chunk), nullptr);
    const Strategy kept = ulysses.entered(problem, spilled_chunk);
    EXPECT_TRUE(ulysses.holds(problem, kept));
    EXPECT_EQ(kept.layer_classes.front().kept(TensorClass::layer_input), 0);
    EXPECT_FALSE(ulysses.holds(problem, with_kept(kept, TensorClass::q, 0)));
    EXPECT_FALSE(ulysses.holds(problem, with_kept(kept, TensorClass::lse, 0)));
    const Strategy stored = with_stored(problem, kept, {0, problem.model.layers});
    EXPECT_TRUE(ulysses.holds(problem, with_kept(stored, TensorClass::lse, 0)));
    EXPECT_FALSE(ulysses.holds(problem, ulysses.entered(problem, spilled(problem, 1, 128))));
  }
}

// Whatever the budgets, the answer of a pinned method is in its region.
TEST(Methods, SearchesStayInTheirRegions) {
  for (const Method* method : methods()) {
    Problem problem = timed_problem(tiny_llama(), method->sharing == Sharing::grid ? 4 : 2, 256);
    Pins pins;
    pins.method = method;
    for (int eighths = 8; eighths > 0; --eighths) {
      const auto best = search(problem, pins).best;
      if (!best) break;
      EXPECT_TRUE(method->holds(problem, best->strategy)) << method->name;
      const Usage need = best->usage;
      problem.host_budget = Bytes{need.host_node.value * 7 / 8};
      problem.device_budget = Bytes{need.device.value * 9 / 8};
    }
  }
}

// Short sequences, ranks that do not divide the heads, chunks that are not whole rows.
TEST(Published, IsSoundWhereItsNumbersDoNotFit) {
  Problem problem = tiny_problem(tiny_llama(), 8, 1000);  // four heads
  problem.cluster.row_multiple = 3;
  const Strategy strategy = method_named("fpdt")->published(problem, 1);
  EXPECT_TRUE(check(problem, strategy).empty());
  EXPECT_EQ(strategy.mesh.replicas, 2);
  EXPECT_EQ(strategy.tiles.chunk_tokens, 1008);
  EXPECT_EQ(geometry(problem, strategy).chunks, 1);
}

// Names the parts that differ between two strategies, by what one lever may change.
TEST(Ladder, ClimbsOneLeverAtATimeToTheEnd) {
  Problem problem = timed_problem(tiny_llama(), 2, 256);
  Strategy from = method_named("fpdt")->published(problem, 1);
  from.tiles.chunk_tokens = 64;
  from = canonical(problem, from);
  const Strategy to = search(problem).best->strategy;
  const std::vector<Rung> rungs = ladder(problem, from, to);
  ASSERT_GT(rungs.size(), 3U);
  EXPECT_EQ(rungs.front().strategy, from);
  EXPECT_EQ(rungs.back().strategy, to);
  const Machine machine(problem.cluster, RateEnd::typical);
  std::vector<std::string> names;
  for (const Rung& rung : rungs) {
    EXPECT_TRUE(check(problem, rung.strategy).empty()) << rung.lever;
    EXPECT_EQ(std::count(names.begin(), names.end(), rung.lever), 0) << rung.lever;
    names.push_back(rung.lever);
  }
  // The first rung gains most: the lever of any other rung, taken first, gains less.
  const auto nanoseconds = [&](const Strategy& strategy) {
    return step_nanoseconds(problem, strategy, machine);
  };
  Strategy duplex = from;
  duplex.copies.duplex = to.copies.duplex;
  EXPECT_LE(nanoseconds(rungs[1].strategy), nanoseconds(duplex));
  Strategy ordered = from;
  ordered.tiles.backward_order = to.tiles.backward_order;
  EXPECT_LE(nanoseconds(rungs[1].strategy), nanoseconds(canonical(problem, ordered)));
}

TEST(Ladder, IsOneRungFromAStrategyToItself) {
  const Problem problem = timed_problem(tiny_llama(), 2, 256);
  const Strategy strategy = spilled(problem, 1, 64);
  const std::vector<Rung> rungs = ladder(problem, strategy, strategy);
  ASSERT_EQ(rungs.size(), 1U);
  EXPECT_EQ(rungs.front().strategy, strategy);
}

// A strategy that fits comes before one that is faster and does not fit.
TEST(Ladder, StaysWithinTheBudgetsAsLongAsItCan) {
  Problem problem = timed_problem(tiny_llama(), 1, 256);
  const Strategy from = spilled(problem, 1, 32);
  Strategy to = with_stored(problem, from, {0, problem.model.layers});
  to = canonical(problem, with_kept(to, TensorClass::attention_output, 1));
  problem.host_budget = usage(problem, from).host_node;
  ASSERT_FALSE(fits(problem, with_stored(problem, from, {0, problem.model.layers})));
  ASSERT_TRUE(fits(problem, to));
  const std::vector<Rung> rungs = ladder(problem, from, to);
  ASSERT_EQ(rungs.size(), 3U);
  for (const Rung& rung : rungs) EXPECT_TRUE(fits(problem, rung.strategy)) << rung.lever;
}

// A segment of several layers cannot store everything, however much it would gain.
TEST(Ladder, FindsASoundOrder) {
  const Problem problem = timed_problem(tiny_llama(), 1, 256);
  Strategy from = spilled(problem, 1, 32);
  from.segments = {2};
  const Strategy to = with_stored(problem, spilled(problem, 1, 32), {problem.model.layers, 0});
  ASSERT_TRUE(check(problem, from).empty());
  ASSERT_FALSE(check(problem, with_stored(problem, from, {problem.model.layers, 0})).empty());
  const std::vector<Rung> rungs = ladder(problem, from, to);
  ASSERT_EQ(rungs.size(), 3U);
  EXPECT_EQ(rungs[1].strategy.segments, std::vector<std::int64_t>{1});
  EXPECT_EQ(rungs.back().strategy, to);
}

// Settings that are only sound together change together.
TEST(Ladder, ChangesAtOnceWhatIsSoundOnlyTogether) {
  const Problem problem = timed_problem(tiny_llama(), 1, 256);
  const Strategy to = spilled(problem, 1, 32);
  Strategy from = to;
  from.segments = {3};  // of two layers
  from.copies.prefetch_depth = 100;
  const std::vector<Rung> rungs = ladder(problem, from, to);
  ASSERT_EQ(rungs.size(), 2U);
  EXPECT_EQ(rungs.back().strategy, to);
  EXPECT_EQ(rungs.back().lever, "inputs stored in 1 -> 2 layers; prefetch_depth 100 -> 1");
}

}  // namespace
}  // namespace fpdt::test
