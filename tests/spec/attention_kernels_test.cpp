// Which tiles cuDNN computes.
#include "fpdt/spec/attention_kernels.h"

#include <gtest/gtest.h>

namespace fpdt {
namespace {

constexpr std::int64_t kMi = 1024 * 1024;

Problem question() {
  Problem problem;
  problem.model.name = "model";
  problem.model.layers = 2;
  problem.model.hidden = 512;
  problem.model.heads = problem.model.kv_heads = 8;
  problem.model.head_dim = 128;
  problem.model.feed_forward = 512;
  problem.model.vocabulary = 512;
  problem.cluster.name = "machine";
  problem.cluster.row_multiple = 128;
  problem.cluster.device_memory = problem.cluster.host_memory = Bytes{kMi * kMi};
  problem.cluster.attention = AttentionKernels::cudnn;
  problem.documents = false;
  problem.seq_len = 4 * kMi;
  return problem;
}

TEST(AttentionKernels, SaysWhyTilesAreNotCudnns) {
  const Problem fused = question();
  Strategy strategy;
  EXPECT_TRUE(fused_attention(fused, strategy));
  EXPECT_EQ(why_own_attention(fused, strategy), "");
  const auto why = [&](auto&& change) {
    Problem problem = question();
    change(problem);
    EXPECT_FALSE(fused_attention(problem, strategy));
    return why_own_attention(problem, strategy);
  };
  EXPECT_EQ(why([](Problem& p) { p.cluster.attention = AttentionKernels::own; }), "");
  EXPECT_EQ(why([](Problem& p) { p.documents = true; }), "those of cuDNN do not support documents");
  EXPECT_EQ(why([](Problem& p) { p.model.head_dim = 80; }),
            "those of cuDNN support heads of 64, 96 or 128 here, not 80");
  EXPECT_EQ(why([](Problem& p) { p.model.head_dim = 256; }),
            "those of cuDNN support heads of 64, 96 or 128 here, not 256");
  Problem hopper = fused;
  hopper.cluster.largest_cudnn_head = hopper.model.head_dim = 256;
  EXPECT_TRUE(fused_attention(hopper, strategy));
  const std::int64_t chunk = strategy.tiles.chunk_tokens;
  EXPECT_EQ(why([&](Problem& p) { p.model.kinds.front().window = chunk - 1; }), kNoWindows);
  Problem windows = fused;
  windows.cluster.cudnn_windows = true;
  windows.model.kinds.front().window = chunk - 1;
  EXPECT_TRUE(fused_attention(windows, strategy));
  Problem covered = fused;
  covered.model.kinds.front().window = covered.seq_len;
  EXPECT_TRUE(fused_attention(covered, strategy)) << "a window of all tokens hides none";
  strategy.storage = Storage::f32;
  EXPECT_EQ(why([](Problem&) {}), "those of cuDNN do not support f32");
}

// Windows of chunks of 64K tokens, from the queries' own chunk back.
TEST(AttentionKernels, CutTilesAreNotCudnns) {
  Problem problem = question();
  const Strategy strategy;
  const std::int64_t c = strategy.tiles.chunk_tokens;
  const auto chunks = [&](std::int64_t window) {
    problem.model.kinds.front().window = window;
    return library_tiles(problem, strategy).front().chunks;
  };
  EXPECT_EQ(chunks(0), problem.seq_len / c);
  EXPECT_EQ(chunks(problem.seq_len), problem.seq_len / c);
  EXPECT_EQ(chunks(4 * c), 4) << "that before them is cut";
  EXPECT_EQ(chunks(4 * c - 1), 3);
  EXPECT_EQ(chunks(c), 1);
  EXPECT_EQ(chunks(c - 1), 0);
  problem.model.kinds.push_back(problem.model.kinds.front());
  problem.model.kinds.back().window = 0;
  using Tiles = std::vector<LibraryTiles>;
  EXPECT_EQ(library_tiles(problem, strategy), (Tiles{{0}, {problem.seq_len / c}}));
  problem.cluster.cudnn_windows = true;
  EXPECT_EQ(library_tiles(problem, strategy), (Tiles{{0, true}, {problem.seq_len / c}}));
  problem.cluster.devices_per_node = 4;
  Strategy ring = strategy;
  ring.mesh.ring = 2;
  ring.keys = Keys::ring;
  EXPECT_TRUE(library_tiles(problem, ring).front().diagonal);
  ring.keys = Keys::gathered;
  EXPECT_FALSE(library_tiles(problem, ring).front().diagonal) << "half of the queries, all keys";
  problem.documents = true;
  EXPECT_EQ(library_tiles(problem, strategy), (Tiles{{0}, {0}}));
}

// An operand of 2^31 elements is too large: 16 K/V heads of 128 allow 2^20 rows less a unit.
TEST(AttentionKernels, LimitsChunks) {
  Problem problem = question();
  EXPECT_EQ(longest_fused_chunk(problem, 1), kMi - 128);
  EXPECT_EQ(longest_fused_chunk(problem, 8), 8 * kMi - 1024);
  problem.model.kv_heads = 2;
  EXPECT_EQ(longest_fused_chunk(problem, 1), 2 * kMi - 128);
  EXPECT_EQ(longest_fused_chunk(problem, 8), 8 * kMi - 1024) << "a head of each rank";
  Strategy strategy;
  strategy.tiles.chunk_tokens = 2 * kMi - 128;
  EXPECT_TRUE(fused_attention(problem, strategy));
  strategy.tiles.chunk_tokens = 2 * kMi;
  EXPECT_EQ(why_own_attention(problem, strategy),
            "those of cuDNN support at most 2097024 tokens per chunk here, not 2097152");
}

}  // namespace
}  // namespace fpdt
