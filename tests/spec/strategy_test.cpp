// Geometry of chunks, and invalid strategies.
#include "fpdt/spec/strategy.h"

#include <cmath>
#include <functional>

#include <gtest/gtest.h>

#include "problems.h"
#include "small_models.h"

namespace fpdt {
namespace {

Problem small(std::int64_t ranks, std::int64_t tokens) {
  Problem problem = test::tiny_problem(test::small_llama("small", 64, 8, 128, 256), ranks, tokens);
  problem.model.layers = 4;
  problem.model.heads = 8;
  return problem;
}

// The chunks share out the padded sequence, and each has as many rows on every rank.
TEST(Geometry, CoversEveryTokenOnce) {
  for (const std::int64_t ranks : {1, 2, 4, 8}) {
    for (const std::int64_t tokens : {1, 15, 16, 61, 100, 128}) {
      for (const std::int64_t chunk : {8, 24, 64, 1024}) {
        Problem problem = small(ranks, tokens);
        Strategy strategy;
        strategy.tiles.chunk_tokens = chunk;
        const Geometry shape = geometry(problem, strategy);
        std::int64_t rows = 0, local_rows = 0;
        for (std::int64_t i = 0; i < shape.chunks; ++i) {
          EXPECT_EQ(shape.rows(i), ranks * shape.local_rows(i));
          rows += shape.rows(i);
          local_rows += shape.local_rows(i);
        }
        EXPECT_EQ(rows, shape.padded_tokens);
        EXPECT_EQ(local_rows, shape.local_tokens());
        EXPECT_EQ(shape.extents, shape.chunks);
        strategy.extent = Extent::whole;
        EXPECT_EQ(geometry(problem, strategy).extents, 1);
        EXPECT_EQ(geometry(problem, strategy).extent_rows(0), shape.local_tokens());
        EXPECT_GE(shape.padded_tokens, tokens);
        EXPECT_LT(shape.padded_tokens - tokens, ranks);
      }
    }
  }
}

TEST(Geometry, RoundsFractionsDownToWholeChunks) {
  Strategy strategy = test::tiny_strategy(16);
  LayerClass layers;
  layers.keep.fill(0.74);
  const Geometry shape = geometry(small(1, 64), strategy);
  EXPECT_EQ(shape.parts(layers, TensorClass::kv).all, 4);
  EXPECT_EQ(shape.parts(layers, TensorClass::kv).kept, 2);
  strategy.extent = Extent::whole;
  EXPECT_EQ(geometry(small(1, 64), strategy).parts(layers, TensorClass::layer_input).all, 1);
  EXPECT_EQ(geometry(small(1, 64), strategy).parts(layers, TensorClass::layer_input).kept, 0);
}

TEST(Geometry, ReplicatesKvHeadsWhenThereAreFew) {
  Strategy strategy;
  strategy.tiles.chunk_tokens = 16;
  EXPECT_EQ(geometry(small(8, 64), strategy).kv_heads, 1);
  EXPECT_EQ(geometry(small(1, 64), strategy).kv_heads, 2);
}

TEST(Strategy, DefaultsWork) {
  for (const std::int64_t ranks : {1, 2, 4, 8}) {
    for (const std::int64_t tokens : {1, 1000, 1 << 20, 1 << 23}) {
      Problem problem = small(ranks, tokens);
      problem.model.vocabulary = tokens;  // keeps the number of tiles small
      EXPECT_TRUE(check(problem, default_strategy(problem)).empty()) << ranks << " " << tokens;
    }
  }
}

// The value that an error suggests is accepted.
TEST(Strategy, LeastRowsMakeFewEnoughTiles) {
  for (const std::int64_t words : {16, 100, 151936}) {
    Problem problem = small(1, 3 << 20);
    problem.model.vocabulary = words;
    Strategy strategy;
    strategy.tiles.loss_vocabulary = (words + 4) / 5;
    strategy.tiles.ffn_rows = least_ffn_rows(problem, strategy);
    strategy.tiles.loss_rows = least_loss_rows(problem, strategy);
    EXPECT_TRUE(check(problem, strategy).empty()) << format_diagnostics(check(problem, strategy));
    --strategy.tiles.loss_rows;
    EXPECT_FALSE(check(problem, strategy).empty());
  }
}

// 100 tokens and 100 positions: the rows up to 128 are padding without positions, unless each
// padding token is its own document.
TEST(Strategy, PaddingOfOneDocumentNeedsPositions) {
  Problem problem = small(2, 100);
  problem.cluster.row_multiple = 64;
  problem.model.learned_positions = 100;
  const Strategy strategy = default_strategy(problem);
  EXPECT_TRUE(check(problem, strategy).empty());
  problem.documents = false;
  const std::vector<Diagnostic> findings = check(problem, strategy);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings.front().code, "P100");
  EXPECT_NE(findings.front().message.find("padded to 128"), std::string::npos);
  problem.model.learned_positions = 128;
  EXPECT_TRUE(check(problem, strategy).empty());
  problem.model.learned_positions = 300;
  problem.seq_len = 300;
  EXPECT_NE(format_diagnostics(check(problem, strategy)).find("use at most 256"),
            std::string::npos);
}

struct Wrong {
  const char* name;
  const char* code;
  std::function<void(Problem&, Strategy&)> spoil;
};

// The names of keys that stand in a map say which: a reader finds them in the file.
TEST(Strategy, FindingsNameKeysByTheirPath) {
  const Problem problem = small(4, 256);
  Strategy later;
  later.mesh.ring = 2;
  later.keep[0] = 0.5;
  Strategy ragged;
  ragged.tiles.chunk_tokens = 63;
  Strategy whole;
  whole.tiles.chunk_tokens = 64;
  whole.extent = Extent::whole;
  whole.layer_classes.front().first_stored_chunk = 1;
  std::string found;
  for (const Strategy& strategy : {later, ragged, whole}) {
    for (const Diagnostic& one : check(problem, strategy)) {
      EXPECT_TRUE(one.message.starts_with(one.field)) << one.message;
      found += one.message + "\n";
    }
  }
  EXPECT_NE(found.find("mesh.ring: 2 with keys: resident cannot"), std::string::npos) << found;
  EXPECT_NE(found.find("keep.parameters: 0.5 cannot"), std::string::npos) << found;
  EXPECT_NE(found.find("layer_classes[0].first_stored_chunk: 1 with extent"), std::string::npos);
  EXPECT_NE(found.find("tiles.chunk_tokens: 63 must"), std::string::npos) << found;
}

// What a message about `mesh.tensor` says to use; 0: nothing is said.
std::int64_t tensor_to_use(const Problem& problem, const Strategy& strategy) {
  constexpr std::string_view kUse = "; use ";
  for (const Diagnostic& one : check(problem, strategy)) {
    const std::size_t at = one.message.find(kUse);
    if (one.field != "mesh.tensor") continue;
    EXPECT_NE(at, std::string::npos) << one.message;
    return std::stoll(one.message.substr(at + kUse.size()));
  }
  return 0;
}

TEST(Strategy, NamesRanksThatMayShareProducts) {
  int told = 0;
  for (const int ranks : {1, 2, 4, 6, 8, 12, 16}) {
    for (std::int64_t tensor = -1; tensor <= 17; ++tensor) {
      const Problem problem = small(ranks, 256);
      Strategy strategy;
      strategy.mesh.tensor = tensor;
      const std::int64_t use = tensor_to_use(problem, strategy);
      if (use == 0) continue;
      strategy.mesh.tensor = use;
      EXPECT_EQ(tensor_to_use(problem, strategy), 0) << tensor << " of " << ranks;
      ++told;
    }
  }
  EXPECT_GT(told, 80);
}

class WrongStrategy : public testing::TestWithParam<Wrong> {};

TEST_P(WrongStrategy, IsFound) {
  Problem problem = small(4, 256);
  Strategy strategy;
  strategy.tiles.chunk_tokens = 64;
  ASSERT_TRUE(check(problem, strategy).empty());
  GetParam().spoil(problem, strategy);
  const std::vector<Diagnostic> findings = check(problem, strategy);
  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(findings.front().code, GetParam().code) << findings.front().message;
}

INSTANTIATE_TEST_SUITE_P(
    Each, WrongStrategy,
    testing::Values(
        Wrong{"seq_len_0", "P100", [](Problem& p, Strategy&) { p.seq_len = 0; }},
        Wrong{"seq_len_2_63", "P100", [](Problem& p, Strategy&) { p.seq_len = INT64_MAX; }},
        Wrong{"too_few_positions", "P100",
              [](Problem& p, Strategy&) { p.model.learned_positions = 8; }},
        Wrong{"replicas", "P101", [](Problem&, Strategy& s) { s.mesh.replicas = 3; }},
        Wrong{"ranks_of_heads", "P101", [](Problem&, Strategy& s) { s.mesh.heads = 3; }},
        Wrong{"ring", "P109", [](Problem&, Strategy& s) { s.mesh.ring = 2; }},
        Wrong{"tensor", "P101", [](Problem&, Strategy& s) { s.mesh.tensor = 3; }},
        Wrong{"tensor_0", "P101", [](Problem&, Strategy& s) { s.mesh.tensor = 0; }},
        Wrong{"tensor_and_heads", "P101",
              [](Problem&, Strategy& s) { s.mesh.tensor = 2, s.mesh.heads = 4; }},
        Wrong{"tensor_of_the_feed_forward", "P102",
              [](Problem& p, Strategy& s) { p.model.feed_forward += 1, s.mesh.tensor = 2; }},
        Wrong{"tensor_of_a_joint_norm", "P102",
              [](Problem& p, Strategy& s) {
                p.model.qk_norm = p.model.joint_qk_norm = true, s.mesh.tensor = 2;
              }},
        Wrong{"tensor_of_whole_extents", "P109",
              [](Problem&, Strategy& s) { s.mesh.tensor = 2, s.extent = Extent::whole; }},
        Wrong{"long_tiles_of_a_ring", "P109",
              [](Problem&, Strategy& s) {
                s.keys = Keys::ring, s.mesh.ring = 2, s.tiles.long_tiles = true;
              }},
        Wrong{"zero", "P103", [](Problem&, Strategy& s) { s.zero = 4; }},
        Wrong{"head_stages", "P109", [](Problem&, Strategy& s) { s.head_stages = 2; }},
        Wrong{"half_of_the_parameters", "P109", [](Problem&, Strategy& s) { s.keep[0] = 0.5; }},
        Wrong{"parameters_of_stage_2", "P109",
              [](Problem&, Strategy& s) {
                s.keep[0] = 0;
                s.zero = 2;
              }},
        Wrong{"parameters_that_nodes_have", "P109",
              [](Problem& p, Strategy& s) {
                s.keep[0] = 0;
                p.cluster.nodes = p.cluster.devices_per_node = 2;
                s.zero_groups = ZeroGroups::hybrid;
              }},
        Wrong{"gradients_of_stage_1", "P109",
              [](Problem&, Strategy& s) {
                s.keep[1] = 0;
                s.zero = 1;
              }},
        Wrong{"rounded_gradients_of_f32", "P109",
              [](Problem&, Strategy& s) {
                s.gradients = Storage::bf16;
                s.storage = Storage::f32;
              }},
        Wrong{"rounded_gradients_of_stage_0", "P109",
              [](Problem&, Strategy& s) {
                s.gradients = Storage::bf16;
                s.zero = 0;
              }},
        Wrong{"half_of_the_states", "P109", [](Problem&, Strategy& s) { s.keep[2] = 0.5; }},
        Wrong{"segments_of_more_layers", "P107",
              [](Problem&, Strategy& s) { s.segments = {4, 1}; }},
        Wrong{"segments_that_leave_layers", "P107",
              [](Problem&, Strategy& s) { s.segments = {1, 2}; }},
        Wrong{"no_segments", "P107", [](Problem&, Strategy& s) { s.segments.clear(); }},
        Wrong{"segments_of_layers_that_store_everything", "P107",
              [](Problem&, Strategy& s) {
                s.segments = {2, 1};
                s.layer_classes.front().recompute = Recompute::keep_all;
              }},
        Wrong{"first_stored_chunk", "P105",
              [](Problem&, Strategy& s) { s.layer_classes.front().first_stored_chunk = 4; }},
        Wrong{"first_stored_chunk_of_whole_extents", "P109",
              [](Problem&, Strategy& s) {
                s.extent = Extent::whole;
                s.layer_classes.front().first_stored_chunk = 1;
              }},
        Wrong{"heads", "P102", [](Problem& p, Strategy&) { p.cluster.devices_per_node = 3; }},
        Wrong{"kv_heads", "P102",
              [](Problem& p, Strategy&) {
                p.model.heads = p.model.kv_heads = 12, p.cluster.devices_per_node = 4,
                p.model.kv_heads = 6;
              }},
        Wrong{"micro_batches", "P103", [](Problem&, Strategy& s) { s.micro_batches = 0; }},
        Wrong{"optimizer_tile", "P103", [](Problem&, Strategy& s) { s.copies.optimizer_tile = 1; }},
        Wrong{"chunk_0", "P104", [](Problem&, Strategy& s) { s.tiles.chunk_tokens = 0; }},
        Wrong{"chunk_not_divided", "P104",
              [](Problem&, Strategy& s) { s.tiles.chunk_tokens = 63; }},
        Wrong{"too_many_chunks", "P104",
              [](Problem& p, Strategy& s) {
                p.seq_len = 4096;
                s.tiles.chunk_tokens = 4;
              }},
        Wrong{"too_many_hops", "P104",
              [](Problem& p, Strategy& s) {
                p.cluster.devices_per_node = 1024;
                p.cluster.nodes = 8;
                p.seq_len = s.tiles.chunk_tokens = 1 << 20;
                s.mesh.ring = 8192;
                s.keys = Keys::ring;
              }},
        Wrong{"too_many_exchanges", "P104",
              [](Problem& p, Strategy& s) {
                p.cluster.devices_per_node = 1024;
                p.cluster.nodes = 4;
                p.seq_len = 1 << 20;
                s.tiles.chunk_tokens = 1 << 19;
                s.mesh.ring = 4096;
                s.keys = Keys::ring;
                s.layer_classes.push_back(s.layer_classes.front());
                s.layer_classes.front().layers = 1;
              }},
        Wrong{"negative_tile", "P104", [](Problem&, Strategy& s) { s.tiles.ffn_rows = -1; }},
        Wrong{"too_many_tiles", "P104",
              [](Problem& p, Strategy& s) {
                p.seq_len = 1 << 20;
                s.tiles.chunk_tokens = 1 << 18;
                s.tiles.ffn_rows = 1;
              }},
        Wrong{"too_many_words", "P104",
              [](Problem& p, Strategy& s) {
                p.model.vocabulary = 100000;
                s.tiles.loss_vocabulary = 1;
              }},
        Wrong{"too_many_pieces", "P104",
              [](Problem& p, Strategy& s) {
                p.model.hidden = 65536;
                s.offload_states(true);
                s.copies.optimizer_tile = 1024;
              }},
        Wrong{"uncountable", "P100",
              [](Problem& p, Strategy&) {
                p.seq_len = 1 << 30;
                p.model.layers = 10000;
                p.model.feed_forward = 1 << 20;
              }},
        Wrong{"infinite_clip", "P108", [](Problem& p, Strategy&) { p.optimizer.clip = HUGE_VAL; }},
        Wrong{"prefetch", "P104", [](Problem&, Strategy& s) { s.copies.prefetch_depth = -1; }},
        Wrong{"no_class", "P105", [](Problem&, Strategy& s) { s.layer_classes.clear(); }},
        Wrong{"too_many_layers", "P105",
              [](Problem&, Strategy& s) { s.layer_classes[0].layers = 5; }},
        Wrong{"too_few_layers", "P105",
              [](Problem&, Strategy& s) { s.layer_classes[0].layers = 3; }},
        Wrong{"fraction", "P106",
              [](Problem&, Strategy& s) { s.layer_classes[0].keep[2] = 1.5; }},
        Wrong{"two_streams", "P106",
              [](Problem&, Strategy& s) {
                s.layer_classes = {LayerClass{}, LayerClass{}};
                s.layer_classes[0].layers = 2;
                s.layer_classes[1].keep[8] = 1;
              }},
        Wrong{"checkpoint", "P107", [](Problem&, Strategy& s) { s.segments = {3}; }},
        Wrong{"cluster", "C101",
              [](Problem& p, Strategy&) { p.cluster.device_memory = Bytes{0}; }}),
    [](const auto& wrong) { return std::string(wrong.param.name); });

}  // namespace
}  // namespace fpdt
