// Which tiles of a window a library computes.
#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/plan/lower.h"

#include "accounts.h"
#include "problems.h"

namespace fpdt {
namespace {

// By chunk of queries and of keys: whether a library computes the tile. A tile has the keys of one
// chunk.
std::map<std::pair<std::int64_t, std::int64_t>, bool> tiles_in_library(const Schedule& schedule,
                                                                       std::int64_t chunk) {
  std::map<std::pair<std::int64_t, std::int64_t>, bool> found;
  for (const Block& block : schedule.blocks) {
    for (const Op& op : block.ops) {
      const auto meet = [&](const auto& tile) {
        const std::pair at{tile.q_first.a / chunk, tile.k_first.a / chunk};
        const auto [known, fresh] = found.try_emplace(at, tile.workspace.present());
        EXPECT_EQ(known->second, tile.workspace.present()) << "forward is as backward";
      };
      if (const auto* one = std::get_if<AttentionForward>(&op.body)) meet(*one);
      if (const auto* other = std::get_if<AttentionBackward>(&op.body)) meet(*other);
    }
  }
  return found;
}

// A window of three chunks cuts the tile of the fourth chunk of keys; of a token less, also the
// third.
TEST(LoweredWindows, LeaveCutTilesToTheBackend) {
  ModelSpec model = test::tiny_llama();
  model.head_dim = 64;
  for (const std::int64_t missing : {0, 1}) {
    for (const auto order : {BackwardOrder::kv_outer, BackwardOrder::q_outer}) {
      const std::int64_t chunk = 256, chunks = 7;
      model.kinds.front().window = 3 * chunk - missing;
      Problem problem = test::tiny_problem(model, 2, chunks * chunk - 5);
      problem.cluster.row_multiple = 128;
      problem.cluster.attention = AttentionKernels::cudnn;
      problem.documents = false;
      Strategy strategy = test::tiny_strategy(chunk);
      strategy.storage = Storage::bf16;
      strategy.tiles.backward_order = order;
      expect_accounts(problem, strategy, true, fmt::format("{} missing", missing));
      const Lowered lowered = lower(problem, strategy);
      std::map<std::pair<std::int64_t, std::int64_t>, bool> expected;
      for (std::int64_t i = 0; i < chunks; ++i) {
        for (std::int64_t j = std::max<std::int64_t>(0, i - 3); j <= i; ++j) {
          expected[{i, j}] = i - j < 3 - missing;
        }
      }
      EXPECT_EQ(tiles_in_library(lowered.schedule.schedule(), chunk), expected);
    }
  }
}

// In a window shorter than a chunk, those of rows with their own keys, if the cluster says so. A
// long tile leaves out the chunk's own keys then.
TEST(LoweredWindows, MayLeaveRowsWithTheirOwnKeysToTheLibrary) {
  ModelSpec model = test::tiny_llama();
  model.head_dim = 64;
  const std::int64_t chunk = 512, chunks = 5;
  model.kinds.front().window = 100;
  for (const bool zigzag : {false, true}) {
    for (const std::int64_t ring : {1, 2}) {
      for (const double kept : {0.0, 1.0}) {
        for (const auto order : {BackwardOrder::kv_outer, BackwardOrder::q_outer}) {
          if (zigzag && ring == 1) continue;
          Problem problem = test::tiny_problem(model, 2, chunks * chunk);
          problem.cluster.row_multiple = 128;
          problem.cluster.attention = AttentionKernels::cudnn;
          problem.cluster.cudnn_windows = true;
          problem.documents = false;
          Strategy strategy = test::tiny_strategy(chunk);
          strategy.storage = Storage::bf16;
          strategy.mesh.ring = ring;
          if (ring > 1) strategy.keys = Keys::ring;
          if (zigzag) strategy.layout = Layout::zigzag;
          strategy.tiles.backward_order = order;
          strategy.tiles.long_tiles = ring == 1;
          strategy.layer_classes.front().keep.fill(kept);
          const std::string name = fmt::format("zigzag {}, ring {}, kept {}, order {}", zigzag,
                                               ring, kept, static_cast<int>(order));
          if (ring == 1) expect_accounts(problem, strategy, true, name);
          const Lowered lowered = lower(problem, strategy);
          std::int64_t in_library = 0, own = 0;
          for (const Block& block : lowered.schedule.schedule().blocks) {
            for (const Op& op : block.ops) {
              const auto meet = [&](const auto& tile) {
                const bool square = tile.q_first == tile.k_first && tile.q_rows == tile.k_rows;
                EXPECT_EQ(tile.workspace.present(), square) << name << " " << op.name;
                ++(square ? in_library : own);
              };
              if (const auto* one = std::get_if<AttentionForward>(&op.body)) meet(*one);
              if (const auto* other = std::get_if<AttentionBackward>(&op.body)) meet(*other);
            }
          }
          EXPECT_GT(in_library, 0) << name;
          EXPECT_GT(own, 0) << name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace fpdt
