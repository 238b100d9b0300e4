// Who sends how much to whom.
#include "fpdt/schedule/traffic.h"

#include <gtest/gtest.h>

namespace fpdt {
namespace {

TEST(Traffic, KnowsTheNodesOfAGroup) {
  const auto sent = [](const Group& group, std::int64_t rank, std::int64_t devices_per_node) {
    const Traffic found = to_others(group, rank, 10, devices_per_node);
    return std::pair(found.node, found.network);
  };
  const Group world{"world", 6, 1, {}};
  EXPECT_EQ(sent(world, 0, 8), std::pair(50L, 0L));
  EXPECT_EQ(sent(world, 5, 1), std::pair(0L, 50L));
  // Nodes of 4 and 2 ranks.
  EXPECT_EQ(sent(world, 1, 4), std::pair(30L, 20L));
  EXPECT_EQ(sent(world, 4, 4), std::pair(10L, 40L));
  // Every other rank.
  const Group strided{"dp", 3, 2, {0, {1, 0, 1, 2}}};
  EXPECT_EQ(sent(strided, 1, 4), std::pair(10L, 10L));
  EXPECT_EQ(sent(strided, 4, 4), std::pair(0L, 20L));
  // One member further, in nodes of 4: the last member's next is the first.
  const auto hops = [&](std::int64_t rank, std::int64_t hop) {
    const Traffic bytes = to_others(world, rank, 10, 4, hop);
    return std::pair(bytes.node, bytes.network);
  };
  EXPECT_EQ(hops(0, 1), std::pair(10L, 0L));
  EXPECT_EQ(hops(3, 1), std::pair(0L, 10L));
  EXPECT_EQ(hops(5, 1), std::pair(0L, 10L));
  EXPECT_EQ(hops(1, 5), std::pair(10L, 0L));
}

TEST(Traffic, CollectivesSendABlockOrAll) {
  EXPECT_EQ(bytes_to_each<AllToAll>(4, 400), 100);
  EXPECT_EQ(bytes_to_each<ReduceScatter>(4, 400), 100);
  EXPECT_EQ(bytes_to_each<AllGather>(4, 400), 400);
  EXPECT_EQ(bytes_to_each<AllReduce>(4, 400), 400);
}

}  // namespace
}  // namespace fpdt
