// Tiles, transfers and residency of the published loop orders: forward with query rows and
// ascending keys, backward with KV rows. The numbers come from replaying the index logic of FPDT's
// public implementation.
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "fpdt/plan/lower.h"

#include "problems.h"

namespace fpdt {
namespace {

struct Counts {
  std::map<std::string, std::int64_t>
      transfers;  // by target or source buffer, "fetch q" or "spill q"
  std::int64_t forward_tiles = 0, recompute_tiles = 0, backward_tiles = 0;
  std::map<std::string, std::int64_t> slots;
};

Counts counts_of(const std::string& block_name, std::int64_t chunks, bool overlap) {
  Strategy strategy = test::tiny_strategy(8);
  strategy.copies.overlap_all_to_all = overlap;
  strategy.layer_classes.front().recompute = Recompute::from_input;
  const Lowered lowered = lower(test::tiny_problem(test::tiny_llama(), 2, 8 * chunks), strategy);
  const Schedule& schedule = lowered.schedule.schedule();
  Counts counts;
  for (const Buffer& buffer : schedule.buffers) counts.slots[buffer.name] = buffer.slots;
  for (const Block& block : schedule.blocks) {
    if (block.name != block_name) continue;
    for (const Op& op : block.ops) {
      if (const auto* tile = std::get_if<AttentionForward>(&op.body)) {
        ++(tile->pass == Pass::forward ? counts.forward_tiles : counts.recompute_tiles);
      }
      if (std::holds_alternative<AttentionBackward>(op.body)) ++counts.backward_tiles;
      if (const auto* copy = std::get_if<Copy>(&op.body)) {
        const auto name = [&](const Operand& operand) {
          return schedule.buffers[static_cast<std::size_t>(operand.buffer)].name;
        };
        if (op.lane.kind == LaneKind::h2d)
          ++counts.transfers["fetch " + name(copy->target.operand)];
        if (op.lane.kind == LaneKind::d2h) ++counts.transfers["spill " + name(copy->source)];
      }
    }
  }
  return counts;
}

TEST(PublishedCounts, Forward) {
  for (const std::int64_t u : {2, 3, 4, 8}) {
    Counts counts = counts_of("forward", u, false);
    EXPECT_EQ(counts.forward_tiles, u * (u + 1) / 2);
    // Row 1 still has kv_0 on the device. Values by hand: 0, 2, 5, 27.
    EXPECT_EQ(counts.transfers["fetch kv"], u * (u - 1) / 2 - 1);
    // The last chunk's K/V serve no later row, so they stay.
    EXPECT_EQ(counts.transfers["spill kv_new"], u - 1);
    // A forward pass that will be repeated stores nothing that only backward needs.
    EXPECT_EQ(counts.transfers["spill q_new"], 0);
    EXPECT_EQ(counts.transfers["spill attention_output_new"], 0);
  }
}

TEST(PublishedCounts, Residency) {
  const Counts counts = counts_of("forward", 8, false);
  // A fetched buffer has a current and a next slot. The published code holds three KV pairs
  // including the row's own. Ours has one more slot, so that the next row's all-to-all need not
  // wait.
  EXPECT_EQ(counts.slots.at("kv"), 2);
  EXPECT_EQ(counts.slots.at("kv_new"), 2);
  EXPECT_EQ(counts.slots.at("q"), 2);
  EXPECT_EQ(counts.slots.at("dout"), 2);
  // dq: one slot for the row's diagonal, a current and a next one.
  EXPECT_EQ(counts.slots.at("dq") + counts.slots.at("dq_diagonal"), 3);
}

TEST(PublishedCounts, Backward) {
  for (const std::int64_t u : {2, 3, 4, 8}) {
    Counts counts = counts_of("backward", u, false);
    EXPECT_EQ(counts.recompute_tiles, u * (u + 1) / 2);
    EXPECT_EQ(counts.backward_tiles, u * (u + 1) / 2);
    // The published u(u+1)/2 - 2 (values by hand 1, 4, 8, 34) leaves out the first fetch, at the
    // end of the published forward. In both versions the last row finds its query chunk in place.
    EXPECT_EQ(counts.transfers["fetch q"], u * (u + 1) / 2 - 1);
    EXPECT_EQ(counts.transfers["fetch lse"], u * (u + 1) / 2 - 1);
    // Row 0 begins every sum of dq on the device and the diagonal ends it there, so the published
    // u(u+1)/2 stores and loads shrink to those in between.
    EXPECT_EQ(counts.transfers["spill dq"] + counts.transfers["spill dq_new"], u * (u - 1) / 2);
    EXPECT_EQ(counts.transfers["fetch dq"] + counts.transfers["fetch dq_diagonal"],
              u * (u - 1) / 2);
  }
}

// Overlap holds one more chunk in flight. From three chunks on, row 1 can then not reuse kv_0.
TEST(PublishedCounts, OverlapFetchesOneMore) {
  EXPECT_EQ(counts_of("forward", 8, true).transfers["fetch kv"], 8 * 7 / 2);
}

}  // namespace
}  // namespace fpdt
