// Lists the groups of a step.
#include "fpdt/plan/lowering/groups.h"

#include <algorithm>
#include <set>
#include <utility>

#include "fpdt/base/math.h"

namespace fpdt {
namespace {

// Group i of n groups of `size` consecutive ranks begins at rank i * size.
RankTerm runs(std::int64_t size, std::int64_t n) { return {n > 1 ? size : 0, 0, size, n}; }

// A group begins at each of so many ranks.
RankTerm place_among(std::int64_t ranks) { return {ranks > 1 ? 1 : 0, 0, 1, ranks}; }

void add_sharing(const Sharers& sharers, std::vector<Group>& groups) {
  const std::int64_t ranks = sharers.ranks, ways = sharers.ways;
  if (sharers.node == 0) {
    groups.push_back({"world", ranks, 1, {}});
  } else {
    const std::int64_t node = sharers.node, nodes = ranks / node;
    groups.push_back({"node", node, 1, {0, runs(node, nodes)}});
    groups.push_back({"nodes", nodes, node, {0, place_among(node)}});
  }
  if (ways > 1 && ranks > ways) {
    if (sharers.here > 1) {
      const RankTerm nodes = runs(sharers.node, ranks / sharers.node);
      groups.push_back({"cut_node", sharers.here, ways, {0, nodes, place_among(ways)}});
    }
    if (sharers.here <= 1 || sharers.copies > 1) {
      groups.push_back({"cut", ranks / ways, ways, {0, place_among(ways)}});
    }
  }
  if (sharers.copies > 1) {
    groups.push_back({"kv", sharers.copies, 1, {0, runs(sharers.copies, ranks / sharers.copies)}});
  }
}

void add_mesh(const Geometry& shape, std::int64_t ranks, bool balances,
              std::vector<Group>& groups) {
  const std::int64_t tensor = shape.tensor_ranks;
  const std::int64_t share = shape.head_ranks() * tensor;  // share the heads
  groups.push_back(
      {"sp", shape.head_ranks(), tensor, {0, runs(share, ranks / share), place_among(tensor)}});
  if (tensor > 1) groups.push_back({"tp", tensor, 1, {0, runs(tensor, ranks / tensor)}});
  const RankTerm replica = runs(shape.sequence_parallel, shape.data_parallel);
  if (balances) groups.push_back({"sequence", shape.sequence_parallel, 1, {0, replica}});
  if (shape.ring == 1) return;
  groups.push_back({"ring", shape.ring, share, {0, replica, place_among(share)}});
  if (!shape.zigzag) return;
  const std::int64_t last = (shape.ring - 1) * share;
  groups.push_back({"ring_reversed", shape.ring, -share, {last, replica, place_among(share)}});
}

}  // namespace

bool keys_apart(const ModelSpec& model, const Strategy& strategy) {
  return strategy.mesh.tensor > model.kv_heads;
}

Sharers::Sharers(const Problem& problem, const Strategy& strategy)
    : ranks(problem.ranks()),
      ways(strategy.mesh.tensor),
      copies(keys_apart(problem.model, strategy) ? ways / problem.model.kv_heads : 1) {
  if (strategy.zero_groups == ZeroGroups::flat || !has_nodes_of_several(problem.cluster)) return;
  node = problem.cluster.devices_per_node;
  here = node % ways == 0 ? node / ways : 1;
}

std::vector<std::string> groups_of_all(const Problem& problem, const Strategy& strategy) {
  if (Sharers(problem, strategy).node == 0) return {"world"};
  return {"node", "nodes"};
}

std::vector<Group> groups_of(const Problem& problem, const Strategy& strategy) {
  std::vector<Group> groups;
  add_sharing(Sharers(problem, strategy), groups);
  add_mesh(geometry(problem, strategy), problem.ranks(), problem.model.balances(), groups);
  return groups;
}

Connections connections_of(const Problem& problem, const Strategy& strategy) {
  const std::int64_t node = problem.cluster.devices_per_node;
  const bool keys = geometry(problem, strategy).gathers_keys();
  std::set<std::pair<std::int64_t, std::int64_t>>
      met;  // of the same size and stride: the same ranks
  Connections connections;
  bool across = false;
  for (const Group& group : groups_of(problem, strategy)) {
    const std::int64_t stride = std::abs(group.stride);
    // Where groups and nodes do not divide each other, some ranks have more peers than others.
    const std::int64_t most = std::min(group.size, div_ceil(node, stride));
    if (met.emplace(group.size, stride).second) connections.peers += most - 1;
    if (group.size == 1 || node % (group.size * stride) == 0) continue;
    across = true;
    if (group.name == "sp" || (group.name.starts_with("ring") && !keys)) continue;
    ++connections.across;
  }
  connections.peers = std::min(connections.peers, node - 1);
  connections.across += across ? 1 : 0;
  return connections;
}

}  // namespace fpdt
