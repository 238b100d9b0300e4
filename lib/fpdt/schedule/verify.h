// The verifier: proves that a schedule is safe to execute, or says everything that is wrong with
// it.
//
// It trusts nothing: neither the loader, nor `depend`, nor the placement. Structure is checked
// first; shapes and coverage where references resolve; order, races and sharing over the full
// expansion of both call lists, with vector clocks, only when the structure is sound. Findings
// carry these codes:
//
//   S101 name is missing, malformed or taken        S102 index does not exist (buffer, block, op)
//   S103 size out of range                          S104 `after` names the op itself or a later one
//   S105 `after` names a call that never is         S106 collective off a comm lane, or other op
//   S107 unknown group                              S108 ranks of a group disagree or out of range
//   S109 advance repeated or out of order           S110 state table entry does not fit its buffer
//   S111 call arguments out of range                S112 rows in more pieces than can be followed
//
//   S201 rows outside the slot                      S202 too few or too many elements for the op
//   S203 dtype not allowed                          S204 space or lane does not fit the op
//   S205 constant out of range                      S206 collective sizes do not fit the group
//   S207 operand missing
//
//   S301 read of a version that was never written   S302 read of a version that was overwritten
//   S303 read of rows that were not written         S304 read not ordered after its write
//   S305 rows written twice in one version          S306 accumulate before the write
//   S307 accumulate after a read                    S308 accumulate not ordered after the last
//   S309 write not ordered after the version before S310 write of an older version than the slot's
//   S311 in-place hazard inside one op
//
//   S401 only some buffers of a space are placed    S402 offset negative, unaligned or too large
//   S403 state, input or output shares bytes        S404 write not ordered after shared bytes' use
//   S405 contents destroyed by what shares bytes    S406 too many overlapping slots
//   S407 in-place hazard between buffers that share bytes
//
//   S501 attention tiles overlap                    S502 attention tiles leave part of the triangle
//   S503 head ranges do not cover the heads         S504 gradient chunks overlap
//   S505 gradient chunks leave a gap                S506 gradients of a block end at different rows
//
//   S601 an op writes an input                      S602 integers that are not what was fed as such
//   S603 evaluation changes a state                 S604 a state or output is not whole at the end
#pragma once

#include <utility>
#include <vector>

#include "fpdt/base/error.h"
#include "fpdt/schedule/schedule.h"

namespace fpdt {

// Everything that is wrong, the first kMostFindings of it; empty when the schedule is safe.
std::vector<Diagnostic> verify(const Schedule& schedule);

inline constexpr std::size_t kMostFindings = 100;

// The only thing that can be executed.
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
