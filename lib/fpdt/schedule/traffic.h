// Bytes that a rank sends to other ranks, by the kind of link.
//
// What counts is who sends to whom, not the route: a library's ring passes on what others sent, and
// that is not counted again. Ranks are numbered node by node. Three accounts must agree: the
// formula of docs/processes.md, the sum over a schedule's ops, and what communicators count.
#pragma once

#include <cstdint>
#include <functional>
#include <type_traits>
#include <vector>

#include "fpdt/base/math.h"
#include "fpdt/schedule/schedule.h"

namespace fpdt {

struct Traffic {
  std::int64_t node = 0;     // to other ranks of the node
  std::int64_t network = 0;  // to ranks of other nodes
  Traffic& operator+=(const Traffic& other);
};

// The bytes that a rank sends to each receiver of a collective: a block of its operand, or all of
// it. The receivers are all other members of the group, or the one of an exchange.
template <class Collective>
std::int64_t bytes_to_each(std::int64_t members, std::int64_t send_bytes) {
  static_assert(IsCollective<Collective>);
  constexpr bool kScatters =
      std::is_same_v<Collective, AllToAll> || std::is_same_v<Collective, ReduceScatter>;
  return kScatters ? div_exact(send_bytes, members) : send_bytes;
}

// The bytes that a rank sends to the others of its group, `bytes` to each. hop > 0: only to the
// member that is so many further (hop_of).
Traffic to_others(const Group& group, std::int64_t rank, std::int64_t bytes,
                  std::int64_t devices_per_node, std::int64_t hop = 0);

// The bytes that a rank sends in the calls of a program: of all buffers, or of those that count.
Traffic traffic(const Schedule& schedule, const std::vector<Call>& calls, std::int64_t rank,
                std::int64_t devices_per_node,
                const std::function<bool(const Buffer&)>& counts = {});

}  // namespace fpdt
