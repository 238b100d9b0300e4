// The contents of a picture of a step over time, shared by the SVG and HTML versions.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
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

// A number in the head of a picture, and its name.
struct Fact {
  std::string name;
  std::string text;
};
struct TimelinePicture {
  TracedRun run;
  std::string title;     // such as "llama3-8b, 2M tokens on 4 x A100 80 GiB"
  std::string subtitle;  // such as the strategy in words
  Bytes device_budget;   // of one device, what lies outside the arena included; 0: no line
  Bytes host_budget;     // pinned memory of one rank; 0: no line
  CallRange zoom;        // drawn once more, op by op
  // The same calls on each rank, on one clock with `run`: measured, or simulated together.
  std::vector<TracedRun> measured{};
  Bytes outside{};  // of the device's budget, what is not for the arena
  // The calls whose ops the HTML version holds one by one; of the others it holds averages. Empty:
  // all. Traces hold every call either way, and so do all sums, shares and peaks.
  std::function<bool(std::size_t call)> holds{};
  // The measured runs whose lanes are drawn, ascending. Empty: those that tell most, and others by
  // number, up to kMostRanks.
  std::vector<std::size_t> rows{};
  std::vector<Fact> rates{};  // how fast the step is, such as its MFU
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

// The name of a block without its variant: "backward" for "backward_last".
std::string phase_of(const std::string& block);

// Nanoseconds within [from, to) in which the lane runs.
std::int64_t busy(const std::vector<LaneOp>& lane, std::int64_t from, std::int64_t to);

// The data that the SVG and the HTML version draw.
struct TimelineData {
  const TimelinePicture* picture = nullptr;
  Live live;
  LaneTimes times;
  std::int64_t end = 0;                  // of the run and of all ranks
  std::vector<LaneTimes> ranks;          // of all measured runs
  std::vector<std::size_t> drawn;        // measured runs whose lanes are drawn, ascending
  std::array<std::size_t, 2> fullest{};  // measured run with the highest peak, by space
  std::map<std::size_t, Live> lives;     // of the fullest
  std::vector<bool> idle{};              // lanes that hardly run on any rank: one row for all
  // The values of the fullest rank; null when nothing is measured.
  [[nodiscard]] const Live* measured(MemorySpace space) const;
};
// The picture must outlive it.
TimelineData timeline_data(const TimelinePicture& picture);

// Lanes of more ranks are too many to read.
inline constexpr std::size_t kMostRanks = 8;

// Step time, rates and memory of the run; of measured ranks, what is beside each.
std::vector<Fact> facts(const TimelineData& data);
// How to read the rows and lines of a picture of measured ranks; "" for one without.
std::string key_to_ranks(const TimelineData& data);
// "measured", or "rank 3" of several.
std::string label_of(const TimelineData& data, std::size_t rank);

// The nanoseconds of each kind on all lanes within [from, to).
using KindTimes = std::array<std::int64_t, kOpKinds>;
KindTimes kind_times(const LaneTimes& times, std::int64_t from, std::int64_t to);
// The mean over all ranks.
KindTimes mean_kind_times(const std::vector<LaneTimes>& ranks, std::int64_t from, std::int64_t to);

// Whether any buffer is in pinned host memory.
bool has_pinned(const Schedule& schedule);

// The end of the last buffer of a space, in bytes; 0 when buffers are not placed.
Bytes arena_end(const Schedule& schedule, MemorySpace space);

// The bytes that a budget leaves to the arena of a space, and their name in pictures; 0 B: no line.
struct BudgetLine {
  std::string_view name;
  Bytes bytes;
};
BudgetLine budget_line(const TimelinePicture& picture, MemorySpace space);

// The title of a space in pictures.
std::string_view title_of(MemorySpace space);

}  // namespace fpdt
