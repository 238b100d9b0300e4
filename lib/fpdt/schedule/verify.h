// The verifier: proves that a schedule is safe to execute, or reports everything that is wrong.
//
// It trusts nothing: neither the loader, nor `depend`, nor the placement. It checks structure
// first, then shapes, roles, placement and coverage, then order, races and sharing over the full
// expansion of both call lists, with vector clocks. At last it follows which tokens rows hold. The
// codes of its findings:
//
// clang-format off
//   Structure   S101  a name is missing, malformed or taken
//               S102  an index does not exist (buffer, block, op)
//               S103  a size is out of range
//               S104  `after` names the op itself or a later one
//               S105  `after` names a call that never is
//               S106  a collective off a comm lane, or another op on one
//               S107  unknown group
//               S108  ranks of a group disagree or are out of range
//               S109  `advance` is repeated or out of order
//               S110  an entry of the state table does not fit its buffer
//               S111  call arguments are out of range
//               S112  rows are in more pieces than can be followed
//
//   Shapes      S201  rows outside the slot
//               S202  too few or too many elements for the op
//               S203  a dtype that is not allowed
//               S204  space or lane does not fit the op
//               S205  a constant is out of range
//               S206  sizes of a collective or its workspace do not fit the group
//               S207  an operand is missing
//
//   Order       S301  read of a version that was never written
//               S302  read of a version that was overwritten
//               S303  read of rows that were not written
//               S304  read not ordered after its write
//               S305  rows written twice in one version
//               S306  accumulate before the write
//               S307  accumulate after a read
//               S308  accumulate not ordered after the last
//               S309  write not ordered after the version before
//               S310  write of an older version than the slot's
//               S311  in-place hazard inside one op
//
//   Placement   S401  only some buffers of a space are placed
//               S402  an offset is negative, unaligned or too large
//               S403  a state, input or output shares bytes
//               S404  write not ordered after the use of shared bytes
//               S405  contents destroyed by what shares their bytes
//               S406  too many overlapping slots
//               S407  in-place hazard between buffers that share bytes
//
//   Coverage    S501  attention tiles overlap
//               S502  attention tiles leave part of the triangle
//               S503  head ranges do not cover the heads
//               S504  chunks of a gradient overlap
//               S505  chunks of a gradient leave a gap
//               S506  gradients of a block end at different rows
//               S507  attention tiles of one pass have different windows
//               S508  queries of a pass with sinks have none, or two
//               S509  rows of balanced experts are counted never, or twice
//               S510  pairs of another slice of experts are read, or a
//                     sum has not each slice once
//
//   Roles       S601  an op writes an input
//               S602  integers that were not fed as what they serve as
//               S603  evaluation changes a state
//               S604  a state or output is not whole at the end
//               S605  an op adds to a gradient and does not say for which rows
//               S606  a feed does not fit its buffer
//               S607  a token of a replica is not fed once
//               S608  a sum of gradients that is not f32
//               S609  a sum that does not begin with zeros
//
//   Origins     S701  rows hold other tokens or heads than an op states
//               S702  an op combines rows of different tokens or heads
//               S703  a sum over attention tiles is not whole where it is used
//               S704  rows cannot be followed
//               S705  pieces are gathered or added up that are not those of the tensor
//
//   Stated      S8xx  of a file that states its problem (stated.h)
// clang-format on
#pragma once

#include <utility>
#include <vector>

#include "fpdt/base/error.h"
#include "fpdt/schedule/schedule.h"

namespace fpdt {

// All findings, at most kMostFindings; empty when the schedule is safe.
std::vector<Diagnostic> verify(const Schedule& schedule);

inline constexpr std::size_t kMostFindings = 100;

// Only a verified schedule can be executed.
class VerifiedSchedule {
 public:
  [[nodiscard]] const Schedule& schedule() const { return schedule_; }

 private:
  explicit VerifiedSchedule(Schedule schedule) : schedule_(std::move(schedule)) {}
  friend VerifiedSchedule verified(Schedule schedule);

  Schedule schedule_;
};

// Throws InputError with the findings.
VerifiedSchedule verified(Schedule schedule);

}  // namespace fpdt
