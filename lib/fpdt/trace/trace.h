// The record of a step: spans on lanes, and the live bytes of each memory space.
//
// A simulation and an execution return the same type, so that prediction and measurement can be
// compared op by op. Times are nanoseconds from the start of the step. Spans are in issue order:
// the k-th span of a lane is the k-th op of that lane.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/base/units.h"

namespace fpdt {

struct Span {
  std::int32_t op = 0;    // index into Trace::ops
  std::int32_t lane = 0;  // index into Trace::lanes
  std::int32_t call = 0;  // number of the call within the step
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool operator==(const Span&) const = default;
};

// `bytes` are live from `time` on.
struct LivePoint {
  std::int64_t time = 0;
  Bytes bytes;
  bool operator==(const LivePoint&) const = default;
};

struct LiveCurve {
  std::string space;              // "device", "host_pinned" or "host"
  Bytes arena;                    // reserved bytes
  std::vector<LivePoint> points;  // ascending times, no two equal
  bool operator==(const LiveCurve&) const = default;
};

struct Trace {
  std::string source;  // "simulated" or "measured", with the machine's name
  std::int64_t rank = 0;
  std::int64_t start = 0;          // of the step by a clock that the ranks share; simulated: 0
  std::vector<std::string> lanes;  // "compute.0"
  std::vector<std::string> ops;    // "forward.attn.1.0"
  std::vector<Span> spans;
  std::vector<LiveCurve> memory;
  bool operator==(const Trace&) const = default;
};

// The end of the last span.
std::int64_t duration(const Trace& trace);

// The time from the first start of a rank to the last end, by the clock that the ranks share.
std::int64_t duration(const std::vector<Trace>& ranks);

// The sum of the spans of one lane.
std::int64_t busy(const Trace& trace, std::int32_t lane);

// The largest live bytes of a curve.
Bytes peak(const LiveCurve& curve);

// The curve of a space; null when the trace has none.
const LiveCurve* find_curve(const Trace& trace, std::string_view space);

}  // namespace fpdt
