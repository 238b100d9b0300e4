// The groups of ranks of a step: those of the mesh, and those that share parameters and states.
//
// Ranks are numbered by replica, ring, heads and tensor, and the last varies fastest.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fpdt/schedule/schedule.h"
#include "fpdt/spec/strategy.h"

namespace fpdt {

// The sides of the grid that share tensors.
struct Sharers {
  Sharers(const Problem& problem, const Strategy& strategy);

  std::int64_t ranks, ways;  // of the job, and of a product
  std::int64_t copies;       // ranks side by side that have the same keys
  // Ranks of a node where states are shared within nodes and then across them; else 0. `here` of
  // them have the same part of a tensor.
  std::int64_t node = 0, here = 0;
};

// Whether more ranks share products than there are KV heads.
bool keys_apart(const ModelSpec& model, const Strategy& strategy);

// The groups whose sums one after the other add up what all ranks have.
std::vector<std::string> groups_of_all(const Problem& problem, const Strategy& strategy);

// Those that share, by names that begin with "world", "node", "cut" or "kv"; of an all-to-all
// ("sp"), of shared products ("tp"), of rings ("ring", "ring_reversed"), and of all ranks of a
// sequence ("sequence"), where their experts are balanced.
std::vector<Group> groups_of(const Problem& problem, const Strategy& strategy);

// What the collectives of a rank connect it with, at most: ranks of its node, and communicators
// over several nodes. One is of all ranks, for messages; an all-gather across nodes has its own.
struct Connections {
  std::int64_t peers = 0, across = 0;
};
Connections connections_of(const Problem& problem, const Strategy& strategy);

}  // namespace fpdt
