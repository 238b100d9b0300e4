// Every corner of FPDT's decision space lowers to a schedule that the verifier accepts, and its
// bytes agree with the closed form: closed form >= arena >= bound >= live.
#include "fpdt/plan/lower.h"

#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/plan/fit.h"
#include "fpdt/schedule/attention_workspace.h"
#include "fpdt/schedule/depend.h"
#include "fpdt/schedule/print.h"
#include "fpdt/schedule/sum_workspace.h"

#include "accounts.h"
#include "problems.h"
#include "traffic_formula.h"

namespace fpdt {
namespace {

// Every tile has a workspace, whose size is that of the tile that needs most.
void expect_workspace(const Problem& problem, const Strategy& strategy) {
  const Lowered lowered = lower(problem, strategy);
  const Schedule& schedule = lowered.schedule.schedule();
  Bytes most, held;
  const auto meet = [&](const auto& tile, AttentionDirection direction) {
    ASSERT_TRUE(tile.workspace.present());
    EXPECT_FALSE(tile.documents.present());
    held = schedule.buffers[static_cast<std::size_t>(tile.workspace.buffer)].slot_bytes();
    most = std::max(most, attention_workspace_bytes(direction, tile.q_rows, tile.k_rows, tile.heads,
                                                    tile.kv_heads, tile.head_dim));
  };
  for (const Block& block : schedule.blocks) {
    for (const Op& op : block.ops) {
      if (const auto* one = std::get_if<AttentionForward>(&op.body)) {
        meet(*one, AttentionDirection::forward);
      } else if (const auto* other = std::get_if<AttentionBackward>(&op.body)) {
        meet(*other, AttentionDirection::backward);
      }
    }
  }
  EXPECT_EQ(held, most);
}

using Corner = std::tuple<int, int, int, int, double>;  // ranks, chunk, order, recompute, keep

class Corners : public testing::TestWithParam<Corner> {};

TEST_P(Corners, AreSafeAndAddUp) {
  const auto [ranks, chunk, order, recompute, keep] = GetParam();
  for (const bool gpt : {false, true}) {
    Problem problem = test::tiny_problem(gpt ? test::tiny_gpt() : test::tiny_llama(), ranks, 60);
    problem.documents = (ranks + order + recompute) % 2 == 0;
    Strategy strategy = test::tiny_strategy(chunk);
    strategy.tiles.backward_order = static_cast<BackwardOrder>(order);
    strategy.layer_classes.front().recompute = static_cast<Recompute>(recompute);
    strategy.layer_classes.front().keep.fill(keep);
    const bool exact = geometry(problem, strategy).chunks >= 3 &&
                       all_rings_turn(geometry(problem, strategy), keep);
    // Each corner tries two of eight variants, so that neighbouring corners try different ones.
    const int start = (ranks + chunk / 4 + order + recompute + (gpt ? 1 : 0)) % 4;
    for (int variant = start; variant < 8; variant += 4) {
      strategy.copies.overlap_all_to_all = (variant & 1) != 0;
      strategy.tiles.serpentine = (variant & 2) != 0;
      strategy.tiles.long_tiles = (variant & 2) != 0;
      strategy.keep =
          kStateHomes[(variant & 4) != 0 ? 1 + static_cast<std::size_t>(chunk / 4 + recompute) % 3
                                         : 0];
      strategy.copies.duplex = (variant & 4) == 0;
      strategy.copies.prefetch_depth = variant % 3;
      strategy.storage = variant % 2 == 0 ? Storage::f32 : Storage::bf16;
      expect_accounts(problem, strategy, exact,
                      (gpt ? "gpt " : "llama ") + std::to_string(variant));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fpdt, Corners,
                         testing::Combine(testing::Values(1, 2, 4), testing::Values(64, 32, 20, 8),
                                          testing::Values(0, 1), testing::Values(0, 1, 2),
                                          testing::Values(0.0, 0.5, 1.0)));

// The stages of ZeRO, around everything that meets them: one micro-batch or two, one group of ranks
// or two, states on the device or streamed, a tied embedding.
TEST(Lower, StagesOfZeroAreSafeAndAddUp) {
  for (int corner = 0; corner < 192; ++corner) {
    const int ranks = 2 << corner / 3 % 2;
    ModelSpec model = corner / 6 % 2 == 0 ? test::tiny_llama() : test::tiny_gpt();
    model.tied_embeddings = corner / 12 % 2 == 0;
    model.vocabulary = 61;  // the last piece of some tensors has padding
    Strategy strategy = test::tiny_strategy(20);
    strategy.zero = corner % 3;
    strategy.storage = corner / 24 % 2 == 0 ? Storage::f32 : Storage::bf16;
    const bool gradients = strategy.zero == 2 && corner < 96;  // they may have their home there
    if (corner / 48 % 2 == 1) strategy.keep = kStateHomes[gradients ? 2 : 1];
    strategy.micro_batches = 1 + corner / 96;
    strategy.mesh.replicas = 1 + corner / 6 % 2;
    strategy.segments = {1 + corner / 12 % 2};
    expect_accounts(test::tiny_problem(model, ranks, 60), strategy, true,
                    fmt::format("corner {}", corner));
  }
}

// Classes in the middle of many layers, of which none is at an end.
TEST(Lower, ClassesInTheMiddleAreSafe) {
  using enum Recompute;
  for (const auto& recompute :
       {std::vector{from_input, keep_attention, keep_all, from_input},
        std::vector{keep_all, keep_attention, from_input}, std::vector{keep_all, from_input}}) {
    for (const std::int64_t layers : {1, 4, 10}) {
      ModelSpec model = test::tiny_llama();
      model.layers = 10 * std::ssize(recompute);
      Strategy strategy = test::tiny_strategy(20);
      strategy.layer_classes.assign(recompute.size(), LayerClass{});
      for (std::size_t i = 0; i < recompute.size(); ++i) {
        strategy.layer_classes[i].recompute = recompute[i];
        strategy.layer_classes[i].layers = i == 0 ? 10 : layers;
      }
      strategy.layer_classes.back().layers = 0;
      expect_accounts(test::tiny_problem(model, 2, 60), strategy, false,
                      fmt::format("{} classes, {} layers", recompute.size(), layers));
    }
  }
}

// Norms and products of all rows of a rank, in each corner and in the models that read other values
// in backward.
TEST(Lower, WholeExtentsAddUp) {
  ModelSpec both = test::tiny_gpt();
  both.parallel_residual = both.qk_norm = true;
  for (int corner = 0; corner < 216; ++corner) {
    const int ranks = 1 << corner % 3;
    const std::int64_t chunk = corner / 3 % 3 == 0 ? 64 : (corner / 9 % 2 == 0 ? 20 : 8);
    ModelSpec model = corner % 4 == 0 ? both : test::tiny_llama();
    model.layers = 4;
    Problem problem = test::tiny_problem(model, ranks, 60);
    problem.documents = corner % 5 == 0;
    Strategy strategy = test::tiny_strategy(chunk);
    strategy.extent = Extent::whole;
    strategy.tiles.backward_order = static_cast<BackwardOrder>(corner % 2);
    strategy.tiles.serpentine = strategy.tiles.long_tiles = corner % 7 < 3;
    strategy.copies.overlap_all_to_all = corner / 2 % 2 == 0;
    strategy.copies.duplex = corner % 5 < 3;
    strategy.copies.prefetch_depth = corner % 3;
    strategy.micro_batches = 1 + corner / 8 % 2;
    strategy.storage = corner % 5 < 2 ? Storage::f32 : Storage::bf16;
    LayerClass& layers = strategy.layer_classes.front();
    layers.recompute = static_cast<Recompute>(corner / 4 % 3);
    const double keep = std::array{0.0, 0.5, 1.0}[static_cast<std::size_t>(corner / 12 % 3)];
    layers.keep.fill(keep);
    if (layers.recompute != Recompute::keep_all && corner % 11 < 4) strategy.segments = {2};
    const Geometry shape = geometry(problem, strategy);
    EXPECT_EQ(shape.extents, 1);
    expect_accounts(problem, strategy, shape.chunks >= 3 && all_rings_turn(shape, keep),
                    fmt::format("corner {}", corner));
  }
}

// A ring, around all-to-alls of the ranks that have the same queries.
struct RingCorner {
  Problem problem;
  Strategy strategy;
};

RingCorner ring_corner(int corner, Keys keys) {
  constexpr std::array<std::array<int, 2>, 4> kRanks{{{2, 2}, {3, 3}, {4, 2}, {4, 4}}};
  const auto [ranks, ring] = kRanks[static_cast<std::size_t>(corner % 4)];
  const ModelSpec model = corner / 4 % 2 == 0 ? test::tiny_llama() : test::tiny_gpt();
  Strategy strategy = test::tiny_strategy(ranks == 3 ? 21 : 20);
  strategy.keys = keys;
  strategy.mesh.ring = ring;
  if (corner % 11 < 5) strategy.layout = Layout::zigzag;
  strategy.tiles.backward_order = static_cast<BackwardOrder>(corner / 8 % 2);
  strategy.tiles.serpentine = corner % 3 == 0;
  strategy.copies.overlap_all_to_all = corner / 16 % 2 == 0;
  strategy.storage = corner / 32 % 2 == 0 ? Storage::f32 : Storage::bf16;
  LayerClass& layers = strategy.layer_classes.front();
  layers.recompute = static_cast<Recompute>(corner / 64 % 3);
  layers.keep.fill(corner % 7 == 0 ? 0.5 : (corner % 7 < 3 ? 1 : 0));
  return {test::tiny_problem(model, ranks, 60), strategy};
}

void expect_accounts(const RingCorner& one, int corner) {
  const Geometry shape = geometry(one.problem, one.strategy);
  const double keep = one.strategy.layer_classes.front().keep.front();
  expect_accounts(one.problem, one.strategy, shape.chunks >= 3 && all_rings_turn(shape, keep),
                  fmt::format("corner {}", corner));
}

TEST(Lower, GatheredKeysAreSafeAndAddUp) {
  for (int corner = 0; corner < 288; ++corner) {
    RingCorner one = ring_corner(corner, Keys::gathered);
    one.strategy.tiles.long_tiles = corner % 3 == 0;
    one.strategy.zero = corner % 5 == 0 ? 0 : 3;
    expect_accounts(one, corner);
  }
}

// Keys go around the ring, each hop in chunks.
TEST(Lower, TravellingKeysAreSafeAndAddUp) {
  for (int corner = 0; corner < 288; ++corner) {
    RingCorner one = ring_corner(corner, Keys::ring);
    if (corner % 13 < 5) one.strategy.key_gradients = Storage::bf16;
    if (corner % 17 < 5) one.strategy.tiles.chunk_tokens = 60;
    if (corner % 17 == 5) one.strategy.extent = Extent::whole;
    one.strategy.copies.duplex = corner % 5 < 3;
    one.strategy.copies.prefetch_depth = corner % 4;
    expect_accounts(one, corner);
  }
}

// cuDNN's tiles share one workspace, as large as the tile that needs most.
TEST(Lower, FusedTilesShareAWorkspace) {
  ModelSpec model = test::tiny_llama();
  model.head_dim = 64;
  for (int corner = 0; corner < 96; ++corner) {
    const int ranks = 1 << corner % 2;
    Problem problem = test::tiny_problem(model, ranks, 9 * 128 * ranks - 5);
    problem.cluster.row_multiple = 128;
    problem.cluster.attention = AttentionKernels::cudnn;
    problem.documents = false;
    Strategy strategy = test::tiny_strategy((corner / 2 % 2 + 1) * 128 * ranks);
    strategy.storage = Storage::bf16;
    strategy.tiles.ffn_rows = strategy.tiles.loss_rows = 100;
    strategy.tiles.backward_order = static_cast<BackwardOrder>(corner / 4 % 2);
    strategy.tiles.serpentine = strategy.tiles.long_tiles = corner / 8 % 2 != 0;
    LayerClass& layers = strategy.layer_classes.front();
    layers.recompute = static_cast<Recompute>(corner / 16 % 3);
    layers.keep.fill(corner / 48 == 0 ? 0.5 : 1);
    expect_accounts(problem, strategy, true, fmt::format("corner {}", corner));
    expect_workspace(problem, strategy);
    problem.documents = true;
    const Lowered own = lower(problem, strategy);
    for (const Buffer& buffer : own.schedule.schedule().buffers) {
      EXPECT_NE(buffer.name, "workspace");
    }
  }
}

// The workspaces of the sums of a schedule.
std::vector<Operand*> sum_workspaces(Schedule& schedule) {
  std::vector<Operand*> all;
  for (Block& block : schedule.blocks) {
    for (Op& op : block.ops) {
      if (auto* scatter = std::get_if<ReduceScatter>(&op.body)) all.push_back(&scatter->workspace);
      if (auto* reduce = std::get_if<AllReduce>(&op.body)) all.push_back(&reduce->workspace);
    }
  }
  return all;
}

// All sums share one workspace, which holds the longest block of every rank and costs no edge.
// Phi 3 has windows that are longer than most sequences.
TEST(Lower, AWindowOfAllTokensIsNone) {
  Problem problem = test::tiny_problem(test::tiny_llama(), 2, 59);
  const Strategy strategy = test::tiny_strategy(20);
  const std::string plain = print(lower(problem, strategy).schedule.schedule());
  const Usage need = usage(problem, strategy);
  const auto with = [&](std::int64_t window) {
    problem.model.kinds.front().window = window;
    const Lowered lowered = lower(problem, strategy);
    EXPECT_EQ(usage(problem, strategy), need);
    EXPECT_GE(need.device, usage(problem, strategy, lowered.placement).device);
    return print(lowered.schedule.schedule());
  };
  EXPECT_EQ(with(59), plain);
  EXPECT_EQ(with(1 << 20), plain);
  EXPECT_NE(with(58), plain);
}

TEST(Lower, SumsShareAWorkspace) {
  for (const std::int64_t ranks : {2, 4}) {
    Strategy strategy = test::tiny_strategy(16);
    strategy.micro_batches = 2;
    const ModelSpec model = test::tiny_gpt();
    Schedule schedule = lower(test::tiny_problem(model, ranks, 60), strategy).schedule.schedule();
    std::int64_t longest = 0;
    for (const auto& list : {layer_tensors(model), global_tensors(model)}) {
      for (const TensorSpec& tensor : list) longest = std::max(longest, tensor.elements());
    }
    const Bytes expected = sum_workspace_bytes(ranks, Bytes{4 * div_ceil(longest, ranks)});
    const std::vector<Operand*> workspaces = sum_workspaces(schedule);
    ASSERT_GE(workspaces.size(), 5U);
    const BufferIndex shared = workspaces.front()->buffer;
    ASSERT_GE(shared, 0);
    const Buffer& buffer = schedule.buffers[static_cast<std::size_t>(shared)];
    EXPECT_EQ(buffer.slot_bytes(), expected);
    EXPECT_EQ(buffer.slots, 1);
    for (Operand* workspace : workspaces) {
      EXPECT_EQ(workspace->buffer, shared);
      *workspace = {};
    }
    std::vector<std::vector<After>> edges;
    for (const Block& block : schedule.blocks) {
      for (const Op& op : block.ops) edges.push_back(op.after);
    }
    depend(schedule);
    std::size_t at = 0;
    for (const Block& block : schedule.blocks) {
      for (const Op& op : block.ops) EXPECT_EQ(op.after, edges[at++]) << block.name << op.name;
    }
  }
  Schedule alone = lower(test::tiny_problem(test::tiny_gpt(), 1, 60), test::tiny_strategy(16))
                       .schedule.schedule();
  EXPECT_TRUE(sum_workspaces(alone).empty());
}

// These models keep, repeat and read other values in backward than the plain families.
TEST(Lower, NormedHeadsAndParallelResidualsAddUp) {
  ModelSpec normed = test::tiny_llama();
  normed.qk_norm = normed.qkv_bias = true;
  ModelSpec parallel = test::tiny_gpt();
  parallel.parallel_residual = true;
  ModelSpec both = parallel;
  both.qk_norm = true;
  for (const ModelSpec& model : {normed, parallel, both}) {
    for (const int recompute : {0, 1, 2}) {
      for (const int ranks : {1, 2}) {
        for (const double keep : {0.0, 0.5}) {
          Strategy strategy = test::tiny_strategy(8);
          strategy.tiles.backward_order = static_cast<BackwardOrder>(ranks - 1);
          LayerClass& layers = strategy.layer_classes.front();
          layers.recompute = static_cast<Recompute>(recompute);
          layers.keep.fill(keep);
          expect_accounts(test::tiny_problem(model, ranks, 60), strategy, true,
                          fmt::format("{} {}", model.name, recompute));
        }
      }
    }
  }
}

// Loses one chunk's share of the norm's gradient, or half of its operands.
TEST(Lower, DamagedNormsOfHeadsAreFound) {
  ModelSpec model = test::tiny_llama();
  model.qk_norm = true;
  const Lowered lowered = lower(test::tiny_problem(model, 1, 60), test::tiny_strategy(20));
  const auto code_after = [&](auto damage) {
    Schedule schedule = lowered.schedule.schedule();
    for (Block& block : schedule.blocks) {
      for (Op& op : block.ops) {
        if (op.name != "dheads.1") continue;
        damage(std::get<JoinHeads>(op.body));
      }
    }
    const std::vector<Diagnostic> findings = verify(schedule);
    return findings.empty() ? "" : findings.front().code;
  };
  EXPECT_EQ(code_after([](JoinHeads&) {}), "");
  EXPECT_EQ(code_after([](JoinHeads& join) { join.local_first = -1; }), "S605");
  EXPECT_EQ(code_after([](JoinHeads& join) { join.qkv = {}; }), "S205");
  EXPECT_EQ(code_after([](JoinHeads& join) { join.k_weight = {}; }), "S205");
  EXPECT_EQ(code_after([](JoinHeads& join) { join.epsilon = 0; }), "S205");
  EXPECT_EQ(code_after([](JoinHeads& join) { join.dk_weight.operand.rows = 7; }), "S202");
}

TEST(Lower, CheckpointsEveryKthLayer) {
  ModelSpec model = test::tiny_llama();
  model.layers = 6;
  for (const int every : {2, 3, 6}) {
    for (const int ranks : {1, 2}) {
      for (const auto order : {BackwardOrder::kv_outer, BackwardOrder::q_outer}) {
        for (const auto recompute : {Recompute::from_input, Recompute::keep_attention}) {
          Strategy strategy = test::tiny_strategy(16);
          strategy.micro_batches = 2;
          strategy.segments = {every};
          strategy.tiles.backward_order = order;
          strategy.layer_classes.front().recompute = recompute;
          expect_accounts(test::tiny_problem(model, ranks, 60), strategy, true,
                          std::to_string(every));
        }
      }
    }
  }
}

TEST(Lower, LayerClassesDiffer) {
  ModelSpec model = test::tiny_llama();
  model.layers = 5;
  Strategy strategy = test::tiny_strategy(16);
  strategy.micro_batches = 2;
  strategy.mesh.replicas = 2;
  LayerClass kept;
  kept.layers = 2;
  kept.recompute = Recompute::keep_all;
  LayerClass attention;
  attention.layers = 1;
  attention.recompute = Recompute::keep_attention;
  attention.keep[static_cast<std::size_t>(TensorClass::kv)] = 1;
  strategy.layer_classes = {kept, attention, LayerClass{}};
  expect_accounts(test::tiny_problem(model, 4, 60), strategy, true, "classes");
}

TEST(Lower, RefusesWhatCannotWork) {
  Problem problem = test::tiny_problem(test::tiny_llama(), 3, 60);
  EXPECT_THROW(lower(problem, test::tiny_strategy(15)), InputError);
  problem = test::tiny_problem(test::tiny_llama(), 2, 60);
  EXPECT_THROW(lower(problem, test::tiny_strategy(15)), InputError);
  problem.seq_len = 0;
  EXPECT_THROW(lower(problem, test::tiny_strategy(16)), InputError);
}

// At real sizes, placement adds at most 2 % to the bound of an arena over 1 GiB.
TEST(Lower, PlacesRealModelsTightly) {
  const ModelSpec model = test::llama3_8b(1).model;
  for (const auto order : {BackwardOrder::kv_outer, BackwardOrder::q_outer}) {
    for (const auto recompute : {Recompute::from_input, Recompute::keep_attention}) {
      for (const double keep : {0.0, 0.5}) {
        Problem problem = test::tiny_problem(model, 4, 1 << 19);
        problem.cluster.row_multiple = 128;
        Strategy strategy = default_strategy(problem);
        strategy.tiles.backward_order = order;
        strategy.layer_classes.front().recompute = recompute;
        strategy.layer_classes.front().keep.fill(keep);
        const Lowered lowered = lower(problem, strategy);
        for (const SpaceUse& use : lowered.placement.space) {
          if (use.arena < Bytes{1 << 30}) continue;
          EXPECT_LE(use.arena.value * 100, use.bound.value * 102);
        }
        EXPECT_GT(lowered.placement.of(MemorySpace::device).arena, Bytes{1 << 30});
      }
    }
  }
}

// With a fixed chunk and everything spilled that can be, a sequence twice as long leaves the
// device's activations unchanged, ring for ring. Only token ids grow.
TEST(Lower, DeviceActivationsDoNotGrowWithTheSequence) {
  for (const auto order : {BackwardOrder::kv_outer, BackwardOrder::q_outer}) {
    for (const auto recompute :
         {Recompute::from_input, Recompute::keep_attention, Recompute::keep_all}) {
      Strategy strategy = test::tiny_strategy(16);
      strategy.tiles.backward_order = order;
      strategy.layer_classes.front().recompute = recompute;
      std::array<Bytes, 2> activations{};
      std::array<Bytes, 2> arenas{};
      for (const std::size_t turn : {0U, 1U}) {
        const Lowered lowered =
            lower(test::tiny_problem(test::tiny_llama(), 2, turn == 0 ? 64 : 128), strategy);
        Bytes tokens;
        for (const Buffer& buffer : lowered.schedule.schedule().buffers) {
          if (buffer.space != MemorySpace::device) continue;
          if (buffer.category == Category::tokens) tokens += buffer.bytes();
          if (buffer.category == Category::activations ||
              buffer.category == Category::communication) {
            activations[turn] += buffer.bytes();
          }
        }
        arenas[turn] = lowered.placement.of(MemorySpace::device).arena - tokens;
      }
      EXPECT_EQ(activations[0], activations[1]);
      EXPECT_LE(arenas[1], arenas[0]);
    }
  }
}

TEST(Lower, NamesItsPasses) {
  std::vector<std::string> passes;
  lower(test::tiny_problem(test::tiny_llama(), 1, 16), test::tiny_strategy(16), "",
        [&](std::string_view pass) { passes.emplace_back(pass); });
  EXPECT_EQ(passes, (std::vector<std::string>{"lower", "depend", "place", "verify", ""}));
}

// Two nodes of two devices. Replicas of two ranks lie in a node, one of four ranks does not.
TEST(Lower, EveryRankSendsTheSame) {
  for (const std::int64_t replicas : {1, 2}) {
    Problem problem = test::tiny_problem(test::tiny_llama(), 4, 64);
    problem.cluster.nodes = 2;
    problem.cluster.devices_per_node = 2;
    Strategy strategy = test::tiny_strategy(16);
    strategy.mesh.replicas = replicas;
    const Traffic formula = closed_form_traffic(problem, strategy);
    EXPECT_GT(formula.network, 0);
    const Lowered lowered = lower(problem, strategy);
    const Schedule& schedule = lowered.schedule.schedule();
    for (std::int64_t rank = 0; rank < 4; ++rank) {
      const Traffic sent = traffic(schedule, schedule.train, rank, 2);
      EXPECT_EQ(sent.node, formula.node) << rank;
      EXPECT_EQ(sent.network, formula.network) << rank;
      const Traffic alone = traffic(schedule, schedule.train, rank, 4);
      EXPECT_EQ(alone.node, formula.node + formula.network);
      EXPECT_EQ(alone.network, 0);
    }
  }
}

}  // namespace
}  // namespace fpdt
