// The contents of a picture of a step over time, shared by the SVG and HTML versions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fpdt/base/units.h"
#include "fpdt/report/live.h"
#include "fpdt/report/palette.h"

namespace fpdt {

// Calls [first, last) by number; empty: none.
struct CallRange {
  std::int32_t first = 0;
  std::int32_t last = 0;
  [[nodiscard]] bool empty() const { return first >= last; }
};

struct TimelinePicture {
  TracedRun run;
  const Trace* second = nullptr;  // the measured trace of the same calls, drawn over the first
  std::string title;              // such as "llama3-8b, 2M tokens on 4 x A100 80 GiB"
  std::string subtitle;           // such as the strategy in words
  Bytes device_capacity;          // the budget of one device; 0: no line
  Bytes host_capacity;            // pinned memory of one rank; 0: no line
  CallRange zoom;                 // drawn once more, op by op
};

// The call to zoom in on: the middle call of the block with the longest total time. Empty when the
// trace has no spans.
CallRange middle_call(const TracedRun& run);

// An op on its lane.
struct LaneOp {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  OpKind kind = OpKind::other;
  OpPlace place;
};

// When a call's ops run on the compute lane.
struct CallBar {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int32_t call = 0;
};

struct LaneTimes {
  std::vector<std::vector<LaneOp>> lanes;  // by lane of the program, ascending
  std::vector<CallBar> calls;              // those with ops on a compute lane
};
LaneTimes lane_times(const TracedRun& run);

// Nanoseconds within [from, to) in which the lane runs.
std::int64_t busy(const std::vector<LaneOp>& lane, std::int64_t from, std::int64_t to);

// A number in the head of a picture, and its name.
struct Fact {
  std::string name;
  std::string text;
};
// Step time and peaks of the run and of the second trace.
std::vector<Fact> facts(const TimelinePicture& picture, const Live& live, const Live* second);

// The end of the last buffer of a space, in bytes; 0 when buffers are not placed.
Bytes arena_end(const Schedule& schedule, MemorySpace space);

// The title of a space in pictures.
std::string_view title_of(MemorySpace space);

}  // namespace fpdt
