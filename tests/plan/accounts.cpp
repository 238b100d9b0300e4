// Compares bytes, names and messages of the closed form with those of the schedule.
#include "accounts.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "fpdt/plan/bytes.h"
#include "fpdt/plan/lower.h"
#include "fpdt/plan/lowering/groups.h"
#include "fpdt/plan/lowering/lower_ops.h"
#include "fpdt/plan/thumbnail.h"

#include "traffic_formula.h"

namespace fpdt {
namespace {

// The buffers of a thumbnail that stand for these, each once.
std::vector<std::string> stand_ins(const std::vector<Buffer>& buffers, const Thumbnail& small) {
  std::vector<std::string> found;
  for (const Buffer& buffer : buffers) {
    const std::string name = stand_in(buffer.name, small);
    if (std::find(found.begin(), found.end(), name) == found.end()) found.push_back(name);
  }
  return found;
}

}  // namespace

void expect_accounts(const Problem& problem, const Strategy& strategy, bool exact,
                     const std::string& what) {
  const Lowered lowered = lower(problem, strategy);
  const Schedule& schedule = lowered.schedule.schedule();
  const BlockBytes formula = block_bytes(problem, strategy);
  const BlockBytes sums = sum_of(schedule);
  for (const auto& [key, bytes] : sums) {
    const auto found = formula.find(key);
    ASSERT_NE(found, formula.end()) << what << ": no formula for " << key.block;
    EXPECT_GE(found->second, bytes) << what << ": " << key.block << " " << word(key.category);
    if (exact) {
      EXPECT_EQ(found->second, bytes) << what << ": " << key.block << " " << word(key.category);
    }
  }
  if (exact) {
    EXPECT_EQ(formula.size(), sums.size()) << what;
  }
  const Thumbnail small = thumbnail(problem, strategy);
  EXPECT_EQ(stand_ins(declared_buffers(problem, strategy, small.library), small),
            stand_ins(declared_buffers(small.problem, small.strategy, small.library), small))
      << what;
  const std::int64_t near = problem.cluster.devices_per_node;
  const Traffic formula_sent = closed_form_traffic(problem, strategy);
  const Traffic sent = traffic(schedule, schedule.train, 0, near);
  EXPECT_EQ(formula_sent.node, sent.node) << what;
  EXPECT_EQ(formula_sent.network, sent.network) << what;
  const Connections connections = connections_of(problem, strategy);
  const auto crosses = [&](const Group& group) {
    for (std::int64_t of = 0; of < schedule.ranks; ++of) {
      if (of / near != group.first.at(of) / near) return true;
    }
    return false;
  };
  std::set<std::string> communicators;
  for (const Block& block : schedule.blocks) {
    for (const Op& op : block.ops) {
      if (!is_collective(op.body)) continue;
      const Group& group = group_of(schedule, op.body);
      if (group.size == 1 || !crosses(group)) continue;
      communicators.insert("messages");
      if (std::holds_alternative<AllGather>(op.body)) communicators.insert(group.name);
    }
  }
  EXPECT_LE(std::ssize(communicators), connections.across) << what;
  for (std::int64_t rank = 0; rank < schedule.ranks; ++rank) {
    std::set<std::int64_t> here;
    for (const Group& group : schedule.groups) {
      for (std::int64_t i = 0; i < group.size; ++i) {
        const std::int64_t peer = group.first.at(rank) + i * group.stride;
        if (peer != rank && peer / near == rank / near) here.insert(peer);
      }
    }
    EXPECT_LE(std::ssize(here), connections.peers) << what;
  }
  const Prediction prediction = predict(problem, strategy);
  const std::array<Bytes, 3> predicted{prediction.device, prediction.host_pinned, prediction.host};
  for (std::size_t space = 0; space < predicted.size(); ++space) {
    const SpaceUse& use = lowered.placement.space[space];
    EXPECT_GE(predicted[space], use.arena) << what;
    EXPECT_GE(use.arena, use.bound) << what;
    EXPECT_GE(use.bound, use.live) << what;
  }
}

bool all_rings_turn(const Geometry& shape, double keep) {
  const auto kept = static_cast<std::int64_t>(keep * static_cast<double>(shape.chunks));
  return kept == shape.chunks || shape.chunks - kept >= 3;
}

}  // namespace fpdt
