// Walks over call lists for `depend`: they find missing edges, and edges that a call needs.
//
// The requirement of an op is one position per lane. It depends on the calls alone, so a CallList
// computes it once. A walk keeps one vector clock per lane: clock[k] is the latest position of lane
// k that is known to be complete. A requirement that neither the lane predecessor's clock nor the
// op's edges cover becomes a static edge.
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

// The calls of a list that walks look at, and what their ops require of other lanes. All other
// calls only advance the clock positions.
struct CallList {
  CallList(const Program& program, const std::vector<Call>& calls, std::vector<std::size_t> kept);

  // A position of a lane that an op requires. What an earlier op of its lane requires is left out.
  struct Requirement {
    std::int32_t op = 0;
    std::int32_t lane = 0;
    Hazards::Position position = -1;
  };

  struct CallSpan {
    std::int32_t block = 0;
    std::int32_t layer = 0;
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
  // Clocks of the ops of the kept calls, [op][lane]; walks use them.
  std::unique_ptr<Hazards::Position[]> clocks;
};

// Walks the list, adds missing edges and marks those that a call needs. Returns whether it added
// any.
bool add_missing(CallList& list, StaticEdges& edges);

// Whether the edges cover what the ops of all calls require.
bool suffice(const Program& program, const StaticEdges& edges, const std::vector<Call>& calls);

}  // namespace fpdt
