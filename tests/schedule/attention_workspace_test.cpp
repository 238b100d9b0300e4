// Bytes of workspaces, worked out by hand.
#include "fpdt/schedule/attention_workspace.h"

#include <gtest/gtest.h>

#include "fpdt/schedule/key_pieces.h"

namespace fpdt {
namespace {

using enum AttentionDirection;
constexpr std::int64_t kKi = 1024;
constexpr std::int64_t kMi = 1024 * kKi;
constexpr std::int64_t kEngine = 64 * kKi;

// 4 query heads and 2 KV heads of 128, 64K by 64K.
TEST(AttentionWorkspace, IsThatOfTheSlices) {
  const std::int64_t rows = 64 * kKi;
  EXPECT_EQ(attention_workspace_bytes(forward, rows, rows, 4, 2, 128),
            Bytes{kEngine + 1 * kMi + 64 * kMi});
  EXPECT_EQ(attention_workspace_bytes(backward, rows, rows, 4, 2, 128),
            Bytes{kEngine + 2 * kMi + 64 * kMi + 2 * 128 * kMi + 128 * kMi})
      << "all four heads in one launch";
  EXPECT_EQ(attention_workspace_bytes(backward, rows, rows, 32, 8, 128),
            Bytes{kEngine + 2 * 2 * kMi + 128 * kMi + 2 * 256 * kMi + 256 * kMi})
      << "eight of 32 heads";
  // The smallest tile. Parts begin at multiples of 256.
  EXPECT_EQ(attention_workspace_bytes(forward, 128, 128, 1, 1, 64),
            Bytes{kEngine + 512 + 2 * 128 * 64});
  EXPECT_EQ(attention_workspace_bytes(backward, 32, 32, 1, 1, 2),
            Bytes{kEngine + 256 + 256 + 256 + 2 * 256 + 256});
}

// Eight heads of 64K rows, or as many rows of longer chunks. The number of members in a launch is a
// divisor.
TEST(AttentionWorkspace, TakesHeadsThatFillAGpu) {
  const std::int64_t rows = 64 * kKi;
  for (const std::int64_t shorter : {128L, 4 * kKi, rows}) {
    EXPECT_EQ(backward_members(shorter, 8, 2), 4);
    EXPECT_EQ(backward_members(shorter, 16, 2), 4);
    EXPECT_EQ(backward_members(shorter, 32, 8), 1);
    EXPECT_EQ(backward_members(shorter, 8, 1), 8);
    EXPECT_EQ(backward_members(shorter, 9, 1), 3);
    EXPECT_EQ(backward_members(shorter, 71, 1), 1) << "a prime";
    EXPECT_EQ(backward_members(shorter, 64, 64), 1);
  }
  EXPECT_EQ(backward_members(2 * rows, 8, 2), 2);
  EXPECT_EQ(backward_members(32 * rows, 8, 2), 1);
}

// Neither is quadratic: forward does not depend on the keys, and backward stops growing after a
// piece.
TEST(AttentionWorkspace, KnowsPiecesOfKeys) {
  const auto bytes = [](AttentionDirection direction, std::int64_t q_rows, std::int64_t k_rows) {
    return attention_workspace_bytes(direction, q_rows, k_rows, 8, 2, 64);
  };
  EXPECT_EQ(bytes(forward, 4 * kKi, 128), bytes(forward, 4 * kKi, 16 * kMi));
  EXPECT_LT(bytes(backward, 4 * kKi, 32 * kKi), bytes(backward, 4 * kKi, 64 * kKi));
  EXPECT_EQ(bytes(backward, 4 * kKi, kBackwardPieceMost), bytes(backward, 4 * kKi, 16 * kMi));
  // The square at the diagonal is not cut.
  const std::int64_t longer = 2 * kBackwardPieceMost;
  EXPECT_EQ(bytes(backward, longer, 16 * kMi) - bytes(backward, longer, kBackwardPieceMost),
            Bytes{4 * 4 * kBackwardPieceMost * 64})
      << "two of the four heads of each KV head, beyond 64K rows";
}

}  // namespace
}  // namespace fpdt
