// Walks over call lists for `depend`: the edges that are missing, and those that a call needs.
//
// What an op requires is one position per lane, and follows from the calls alone: a CallList finds
// it once. A walk keeps one vector clock per lane: clock[k] is the latest position of lane k that
// is known complete. What the clock of its lane predecessor and its edges do not cover becomes a
// static edge.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "fpdt/schedule/expand.h"
#include "fpdt/schedule/hazards.h"

namespace fpdt {

// An edge and whether some call needed it.
struct StaticEdge {
  After after;
  bool needed = false;
};

// [block][op]
using StaticEdges = std::vector<std::vector<std::vector<StaticEdge>>>;

// The calls to look at of a call list, and what their ops require of other lanes. The others only
// advance.
struct CallList {
  CallList(const Program& program, const std::vector<Call>& calls, std::vector<std::size_t> kept);

  // An op requires a position of a lane. What an earlier op of its lane requires is left out.
  struct Requirement {
    std::int32_t op = 0;
    std::int32_t lane = 0;
    Hazards::Position position = -1;
  };

  struct CallSpan {
    std::int32_t block = 0;
    std::int32_t number = 0;  // among the calls of its block
    bool kept = false;
    std::size_t first_requirement = 0;
    std::size_t first_clock = 0;  // of its ops
  };

  const Program& program;
  std::vector<std::vector<std::vector<std::int32_t>>> ops_on_lane;  // [block][lane]
  std::vector<CallSpan> calls;
  std::vector<Hazards::Position> lane_begin;  // [call][lane]
  std::vector<Requirement> requirements;
  // For the walks: of the ops of the kept calls, [op][lane].
  std::unique_ptr<Hazards::Position[]> clocks;
};

// Walks the list: adds the edges that are missing, and marks those that a call needs. Returns
// whether it added any.
bool add_missing(CallList& list, StaticEdges& edges);

// Whether the edges cover what the ops of all calls require.
bool suffice(const Program& program, const StaticEdges& edges, const std::vector<Call>& calls);

}  // namespace fpdt
