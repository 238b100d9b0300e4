// Which values live when: every value of a step lives in its slot from the start of the first op
// that touches it to the end of the last; states, inputs and outputs live throughout. Gives totals
// over time, and the values alive at their peak.
//
// A trace may hold the spans of some calls only. Events in the calls between are taken to happen
// when the traced calls before them have ended. A value that is made before the traced calls and
// used in or after them therefore lives throughout.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/base/units.h"
#include "fpdt/report/palette.h"
#include "fpdt/schedule/expand.h"
#include "fpdt/trace/trace.h"

namespace fpdt {

using PartBytes = std::array<std::int64_t, kParts>;  // by Part
using TintBytes = std::array<std::int64_t, kTints>;
std::int64_t total(const PartBytes& bytes);
std::int64_t total(const TintBytes& bytes);

// A step that was run or simulated, the source of every picture. The three referents must outlive
// it.
struct TracedRun {
  const Program* program = nullptr;
  const std::vector<Call>* calls = nullptr;
  const Trace* trace = nullptr;
  std::int64_t shift = 0;  // nanoseconds added to all times of the trace
};

// Shifts measured runs onto one clock, which begins with the first of them. A simulated run begins
// there.
void put_on_one_clock(std::vector<TracedRun>& runs);

// An op of a run: the number of the call, and of the op within its block.
struct OpPlace {
  std::int32_t call = -1;
  std::int32_t op = -1;
};

// One value of a temporary buffer, in its slot.
struct Life {
  BufferIndex buffer = 0;
  std::int64_t version = 0;
  std::int64_t begin = 0;  // nanoseconds, as in the trace
  std::int64_t end = 0;
  OpPlace first, last;  // by issue order
};

// The beginning or end of a life.
struct LiveChange {
  std::int64_t time = 0;
  std::int32_t life = 0;
  bool begins = false;
};

struct Live {
  const Schedule* schedule = nullptr;
  std::int64_t begin = 0;                          // of the first span
  std::int64_t end = 0;                            // of the last
  std::vector<Life> lives;                         // of temporaries; ascending by begin, none empty
  std::array<std::vector<LiveChange>, 3> changes;  // by MemorySpace, ascending by time, ends first
  std::array<PartBytes, 3> always{};               // states, inputs and outputs
  std::vector<std::int8_t> tint;                   // of each buffer; -1: none
  std::vector<std::string> tinted;                 // the names of the tints in use
};

Live find_live(const TracedRun& run);

// Gives the heaviest activations at the peaks of the device and of the host, in turn, a tint each.
// Rings of one tensor have the same tint: "kv" for kv_kept and kv_host.
void tint_heaviest(Live& live);

// A stretch [begin, end) of equal bytes.
struct LiveStep {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  PartBytes bytes{};
  TintBytes tints{};  // of the activations, what has a tint
};

// The live bytes of a space over [from, to). Exact if that takes at most `most` steps. Otherwise
// `most` steps of equal length, each with the bytes at the moment of its largest total, so that no
// peak is lost.
std::vector<LiveStep> live_steps(const Live& live, MemorySpace space, std::int64_t from,
                                 std::int64_t to, std::size_t most);

// The slots of one buffer that are live at one time.
struct LiveBuffer {
  BufferIndex buffer = 0;
  Bytes bytes;
  std::vector<std::int32_t> lives;  // indices into Live::lives; empty: all slots, always
};

struct LivePeak {
  std::int64_t time = 0;  // the first time of the peak
  Bytes bytes;
  PartBytes parts{};
  std::vector<LiveBuffer> buffers;  // by descending bytes, then by number
};
LivePeak find_peak(const Live& live, MemorySpace space);
LivePeak find_peak(const Live& live, MemorySpace space, std::int64_t from, std::int64_t to);
LivePeak find_live_at(const Live& live, MemorySpace space, std::int64_t time);

// The chunk in the name of an op: the first part that is a number ("attn.3.0": 3), or -1. Op names
// are labels for people, so use the result only in labels: no op or buffer stores the number of a
// chunk.
std::int64_t chunk_of(const std::string& op);

// "layers 0-31", "layer 3", "layers 0, 2, 4-7". Precondition: some numbers.
std::string ranges(std::string_view word, const std::set<std::int64_t>& numbers);

// The calls and chunks that the live slots of a buffer come from, such as "forward, layers 0-31,
// chunks 0-3".
std::string origin(const Live& live, const std::vector<Call>& calls, const LiveBuffer& buffer);

// "forward.attn.3.0, layer 12".
std::string op_text(const Schedule& schedule, const std::vector<Call>& calls, const OpPlace& place);

}  // namespace fpdt
