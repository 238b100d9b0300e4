// Bytes of the workspaces of sums, worked out by hand.
#include "fpdt/schedule/sum_workspace.h"

#include <gtest/gtest.h>

namespace fpdt {
namespace {

TEST(SumWorkspace, HoldsTheBlocksOfAllMembers) {
  EXPECT_EQ(sum_workspace_bytes(2, Bytes{4}), Bytes{8});
  EXPECT_EQ(sum_workspace_bytes(8, Bytes{1 << 20}), Bytes{8 << 20});
  EXPECT_EQ(sum_workspace_bytes(3, Bytes{2}), Bytes{8}) << "three bf16 in whole f32";
}

TEST(SumWorkspace, OneMemberNeedsNone) { EXPECT_EQ(sum_workspace_bytes(1, Bytes{4096}), Bytes{}); }

// What the napkin promises: pieces of a MiB, and one element of each member of the largest group.
TEST(SumWorkspace, HoldsPiecesOfLongBlocks) {
  const Bytes longest{std::int64_t{1} << 40};
  for (const std::int64_t members : {8, 16, 32}) {
    EXPECT_EQ(sum_workspace_bytes(members, longest), kSumWorkspaceMost);
    EXPECT_GE(kSumWorkspaceMost.value / members, 1 << 20);
  }
  EXPECT_GE(sum_workspace_bytes(1 << 20, longest).value / (1 << 20), 4);
}

}  // namespace
}  // namespace fpdt
