// Budgets, and the values that are solved in closed form.
#include "fpdt/plan/fit.h"

#include <algorithm>
#include <array>

#include <gtest/gtest.h>

#include "fpdt/spec/checkpoint_bytes.h"
#include "fpdt/spec/edits.h"

#include "problems.h"

namespace fpdt::test {
namespace {

Problem ample(std::int64_t ranks, std::int64_t seq_len) {
  Problem problem = tiny_problem(tiny_llama(), ranks, seq_len);
  problem.device_budget = problem.host_budget = problem.cluster.device_memory;
  return problem;
}

TEST(Fit, FractionsKeepExactlySoManyChunks) {
  for (std::int64_t chunks = 1; chunks <= 180; ++chunks) {
    for (std::int64_t kept = 0; kept <= chunks; ++kept) {
      const double fraction = fraction_of(kept, chunks);
      EXPECT_EQ(static_cast<std::int64_t>(fraction * static_cast<double>(chunks)), kept);
    }
  }
}

TEST(Fit, WhatLiesOutsideCountsForTheDevice) {
  Problem problem = ample(4, 64);
  problem.cluster.outside.context = Bytes{1000};
  problem.cluster.outside.per_peer = Bytes{10};
  const Usage need = usage(problem, tiny_strategy(16));
  EXPECT_EQ(need.device, need.arena + Bytes{1060} + need.mapping);
  EXPECT_EQ(need.host_node, 4 * need.host_rank + need.loading.node);
  problem.device_budget = need.device;
  problem.host_budget = need.host_node;
  EXPECT_TRUE(within(problem, need));
  problem.device_budget = need.device - Bytes{1};
  EXPECT_FALSE(within(problem, need));
  problem.device_budget = need.device;
  problem.host_budget = need.host_node - Bytes{1};
  EXPECT_FALSE(within(problem, need));
}

TEST(Fit, ADeviceMapsWhatItsRankPins) {
  Problem problem = ample(4, 64);
  Strategy strategy = with_stored_on_host(tiny_strategy(16));
  strategy.offload_states(true);
  EXPECT_EQ(usage(problem, strategy).mapping, Bytes{});  // nothing says that it is a GPU
  problem.cluster.outside.context = Bytes{1000};
  const Bytes pinned = predict(problem, strategy).host_pinned;
  ASSERT_GT(pinned, Bytes{5 * 4096});
  const Usage need = usage(problem, strategy);
  EXPECT_EQ(need.mapping, Bytes{8 * ((pinned.value + 4095) / 4096)});
  EXPECT_EQ(need.device, need.arena + Bytes{1000} + need.mapping);
}

// One process of the job writes. It loads before it saves, so only the larger counts.
TEST(Fit, TheHostHoldsWhatLoadingAndSavingTake) {
  Problem problem = ample(4, 64);
  const Bytes load = loading_bytes(problem.model), save = saving_bytes(problem.model);
  Usage need = usage(problem, tiny_strategy(16));
  EXPECT_EQ(need.loading, (HostBytes{load, 4 * load}));
  EXPECT_EQ(need.saving, (HostBytes{save, 4 * save}));
  EXPECT_GT(need.loading.node, need.saving.node);
  EXPECT_EQ(need.host_node, 4 * need.host_rank + need.loading.node);

  problem.model = tiny_gpt();
  problem.model.feed_forward = 1'000'000;
  const Bytes more = reordering_bytes(problem.model);
  need = usage(problem, tiny_strategy(16));
  EXPECT_EQ(need.saving.rank, saving_bytes(problem.model) + more);
  EXPECT_EQ(need.saving.node, 4 * saving_bytes(problem.model) + more);
  EXPECT_GT(need.saving.node, need.loading.node);
  EXPECT_EQ(need.host_node, 4 * need.host_rank + need.saving.node);
}

// Ranks are spread evenly; where they cannot be, the fullest node counts.
TEST(Fit, EachNumaNodeHoldsItsRanks) {
  for (const auto& [ranks, nodes, fullest] :
       {std::array{4, 1, 4}, {4, 2, 2}, {3, 2, 2}, {1, 2, 1}, {2, 8, 1}, {8, 4, 2}}) {
    Problem problem = ample(ranks, 64 * ranks);
    problem.cluster.numa_nodes = nodes;
    Prediction prediction;
    prediction.host_pinned = Bytes{1000};
    prediction.host = Bytes{24};
    const Usage need = usage(problem, tiny_strategy(16), prediction);
    EXPECT_EQ(need.host_numa, Bytes{1024 * fullest}) << ranks << nodes;
    problem.host_budget = Bytes{1024 * fullest * nodes};
    EXPECT_EQ(numa_budget(problem), Bytes{1024 * fullest});
    EXPECT_TRUE(fits_numa_nodes(problem, need)) << ranks << nodes;
    problem.host_budget = Bytes{1024 * fullest * nodes - 1};
    EXPECT_FALSE(fits_numa_nodes(problem, need)) << ranks << nodes;
    // Other nodes have memory: the plan runs. Where ranks divide, both budgets end together. To
    // load and save, memory may be anywhere.
    problem.host_budget += need.loading.node;
    EXPECT_EQ(within(problem, need), ranks < fullest * nodes) << ranks << nodes;
  }
}

TEST(Fit, StoredLayersAreReadAsTheyWereWritten) {
  const Problem problem = ample(1, 64);
  for (const StoredLayers stored : {StoredLayers{0, 0}, {0, 1}, {1, 0}, {1, 1}, {2, 0}, {0, 2}}) {
    const Strategy strategy = with_stored(problem, tiny_strategy(16), stored);
    EXPECT_EQ(stored_layers(problem, strategy), stored);
    EXPECT_TRUE(check(problem, strategy).empty());
  }
}

// As many attention outputs are stored as fit the budgets; a chunk more does not fit.
TEST(Fit, FillsTheHostAndNotMore) {
  Problem problem = ample(1, 16384);
  problem.model.layers = 8;
  const Strategy skeleton = spilled(problem, 1, 128);
  const auto need = [&](std::int64_t n) {
    return usage(problem, with_stored(problem, skeleton, {0, n}));
  };
  problem.host_budget = need(3).host_node;
  problem.device_budget = std::max(need(3).device, need(0).device);
  const Strategy full = with_most_stored(problem, skeleton);
  EXPECT_TRUE(fits(problem, full));
  EXPECT_EQ(stored_layers(problem, full).attention, 8);
  const std::int64_t first = full.layer_classes.front().first_stored_chunk;
  ASSERT_GT(first, 0);
  EXPECT_LT(first, 16384 / 128 * 5 / 8) << "three layers whole are less";
  EXPECT_FALSE(fits(problem, with_stored_from(problem, full, {first - 1, 8})));
}

// If the device has room, what does not fit on the host moves there.
TEST(Fit, MovesToTheDeviceWhatTheHostCannotHold) {
  Problem problem = ample(1, 1024);
  const Strategy skeleton = spilled(problem, 1, 128);
  problem.host_budget =
      usage(problem, with_most_stored(problem, skeleton)).host_node - Bytes{100000};
  const Strategy moved = with_most_stored(problem, skeleton);
  EXPECT_TRUE(fits(problem, moved));
  EXPECT_EQ(stored_layers(problem, moved).attention, problem.model.layers);
  EXPECT_GT(moved.layer_classes.front().kept(TensorClass::attention_output), 0);
}

TEST(Fit, ChunkLengthsAscendToTheWholeSequence) {
  Problem problem = ample(4, 3000000);
  problem.cluster.row_multiple = 128;
  const std::vector<std::int64_t> lengths = chunk_lengths(problem, 4);
  EXPECT_EQ(lengths.back(), 3000320);  // a multiple of 512
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    EXPECT_EQ(lengths[i] % 512, 0);
    EXPECT_TRUE(i == 0 || lengths[i - 1] < lengths[i]);
  }
  problem.seq_len = 700;
  EXPECT_EQ(chunk_lengths(problem, 4), (std::vector<std::int64_t>{512, 1024}));
}

TEST(Fit, ChunksOfARingAreFewer) {
  const Problem problem = ample(4, 1 << 20);
  EXPECT_EQ(chunk_lengths(problem, 4, 4).front(), 1 << 14);
  EXPECT_EQ(chunk_lengths(problem, 4, 4, 4).front(), 1 << 15);
}

// 4 heads of 128 on one rank: cuDNN refuses 2^22 rows, and the cluster has only cuDNN's rates.
TEST(Fit, ChunkLengthsEndWhereCudnnDoes) {
  Problem problem = ample(1, 1 << 22);
  problem.cluster.row_multiple = 128;
  problem.cluster.attention = AttentionKernels::cudnn;
  problem.documents = false;
  problem.model.head_dim = 128;
  EXPECT_EQ(chunk_lengths(problem, 1).back(), 1 << 21);
  problem.documents = true;
  EXPECT_EQ(chunk_lengths(problem, 1).back(), 1 << 22);
  problem.documents = false;
  problem.seq_len = (1 << 22) - 128;
  EXPECT_EQ(chunk_lengths(problem, 1).back(), (1 << 22) - 128);
}

// 40 heads over 16 ranks: two replicas of 8.
TEST(Fit, ReplicasWhereHeadsDoNotDivide) {
  Problem problem = ample(16, 64);
  problem.model.heads = problem.model.kv_heads = 40;
  EXPECT_EQ(data_parallel_degrees(problem), (std::vector<std::int64_t>{2, 4, 8, 16}));
}

TEST(Fit, TidiedStrategiesHaveNoSettingsWithoutEffect) {
  const Problem problem = ample(1, 64);
  Strategy strategy = tiny_strategy(16);
  strategy.tiles.long_tiles = true;
  strategy.tiles.ffn_rows = 1000;
  for (const TensorClass tensor : {TensorClass::residual, TensorClass::dkv}) {
    strategy = with_kept(strategy, tensor, 1);
  }
  EXPECT_FALSE(without_effect(problem, strategy).empty());
  strategy.copies.optimizer_tile = Copies{}.optimizer_tile;
  EXPECT_TRUE(without_effect(problem, canonical(problem, strategy)).empty());
}

// A whole tensor is one part, kept or not, and one that a block makes and uses has no home.
TEST(Fit, WholeTensorsAreKeptOrNot) {
  const Problem problem = ample(1, 64);
  Strategy strategy = tiny_strategy(16);
  strategy.extent = Extent::whole;
  strategy.copies.optimizer_tile = Copies{}.optimizer_tile;
  strategy.layer_classes.front().keep.fill(0.5);
  const LayerClass half = canonical(problem, strategy).layer_classes.front();
  EXPECT_EQ(half.kept(TensorClass::layer_input), 0);
  EXPECT_EQ(half.kept(TensorClass::kv), 0.5);
  strategy.layer_classes.front().keep.fill(1);
  const LayerClass all = canonical(problem, strategy).layer_classes.front();
  EXPECT_EQ(all.kept(TensorClass::layer_input), 1);
  EXPECT_EQ(all.kept(TensorClass::attention_output), 0);
  EXPECT_EQ(all.kept(TensorClass::residual_gradient), 0);
  const std::vector<std::string> notes = without_effect(problem, strategy);
  EXPECT_EQ(std::count_if(notes.begin(), notes.end(),
                          [](const std::string& note) {
                            return note.find("extent: whole") != std::string::npos;
                          }),
            2);
  EXPECT_TRUE(without_effect(problem, canonical(problem, strategy)).empty());
}

}  // namespace
}  // namespace fpdt::test
