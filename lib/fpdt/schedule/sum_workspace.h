// The memory into which a sum over ranks moves its members' blocks.
//
// Sums are taken in member order (docs/adr/0018). Ranks that cannot read each other's memory first
// move the blocks into this workspace, a piece of every member at a time, and then add the pieces.
// Ranks that can do not touch it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fpdt/base/math.h"
#include "fpdt/base/units.h"

namespace fpdt {

// Napkin: pieces of 1 MiB or more use a link fully. A link of 25 GB/s moves 1 MiB in 40 us, one of
// 300 GB/s in 3.5 us, beside some 10 us to start a round of moves. 32 MiB hold pieces of 4 MiB for
// 8 members, 2 MiB for 16 and 1 MiB for 32, and a round between 8 members on 300 GB/s takes 100 us.
// Twice as much would save at most 5 % of the sum, and the sums are less than 1 % of a long step.
inline constexpr Bytes kSumWorkspaceMost{32 << 20};

// Bytes that a sum of `members` reserves when the largest block that a member receives has `block`
// bytes: the blocks of all members, at most kSumWorkspaceMost, in whole f32. One member needs none.
inline Bytes sum_workspace_bytes(std::int64_t members, Bytes block) {
  if (members == 1) return {};
  return Bytes{std::min(round_up((members * block).value, 4), kSumWorkspaceMost.value)};
}

}  // namespace fpdt
