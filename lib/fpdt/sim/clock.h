// The clock: lanes run their ops in issue order, each op starts when its lane is free and its waits
// are complete, and ops that run at the same time slow each other.
//
// Between two events (the end of ops, and the start of others at that instant) every running lane
// has one pace, and its remaining work falls by pace * ticks, in whole numbers. An op ends at the
// first tick at which no work remains. The future therefore depends only on the state of the lanes
// relative to now.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "fpdt/schedule/expand.h"

namespace fpdt {

inline constexpr std::int64_t kWorkPerTick = 1024;
inline constexpr std::int64_t kMostTicks = std::int64_t{1} << 50;  // of one op

// Pace by kind of the lane and set of kinds that run (bit k: kind k). kWorkPerTick is the pace of
// running alone.
using PaceTable = std::array<std::array<std::int64_t, 16>, 4>;

struct ClockQuestion {
  const Program& program;
  const std::vector<Call>& calls;
  std::vector<std::vector<std::int64_t>> ticks;  // of every op running alone, [block][op]
  PaceTable pace{};
  bool hazards = false;  // wait for what versions demand, not for edges
  bool skip_periods = true;
  std::vector<bool> traced{};  // [call]: whether its spans are wanted; or empty
};

struct TickSpan {
  std::int32_t call = 0;
  std::int32_t block = 0;
  std::int32_t op = 0;  // in its block
  std::int32_t lane = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// All times in ticks.
struct ClockAnswer {
  struct CallSpan {
    std::int64_t begin = -1;  // -1: no op has started
    std::int64_t end = 0;
    bool operator==(const CallSpan&) const = default;
  };
  std::int64_t end = 0;
  std::vector<std::int64_t> lane_busy;  // by lane kind
  std::vector<std::int64_t> kind_busy;  // by index of kBodyNames
  std::vector<CallSpan> calls;
  std::vector<TickSpan> spans;  // in order of their ends
  std::int64_t simulated = 0;   // ops that were not skipped
};

// Precondition: edges name earlier ops.
ClockAnswer run_clock(const ClockQuestion& question);

// The other ranks that a rank meets in each op, [block][op]: those that a collective of its sends
// to or receives from.
using Partners = std::vector<std::vector<std::vector<std::int32_t>>>;

// Several ranks on one clock, by rank: the same program and calls, waiting for edges, each with its
// own ticks. A collective starts on a rank when the ranks that it meets there have come to it as
// well; until then its lane is idle. Nothing is skipped. Precondition: partners are mutual.
std::vector<ClockAnswer> run_clocks(const std::vector<ClockQuestion>& ranks,
                                    const std::vector<Partners>& partners);

}  // namespace fpdt
