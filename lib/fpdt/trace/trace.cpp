// Computes sums and maxima of a trace.
#include "fpdt/trace/trace.h"

#include <algorithm>

namespace fpdt {

std::int64_t duration(const Trace& trace) {
  std::int64_t last = 0;
  for (const Span& span : trace.spans) last = std::max(last, span.end);
  return last;
}

std::int64_t duration(const std::vector<Trace>& ranks) {
  if (ranks.empty()) return 0;
  std::int64_t first = ranks.front().start;
  std::int64_t last = first;
  for (const Trace& rank : ranks) {
    first = std::min(first, rank.start);
    last = std::max(last, rank.start + duration(rank));
  }
  return last - first;
}

std::int64_t busy(const Trace& trace, std::int32_t lane) {
  std::int64_t sum = 0;
  for (const Span& span : trace.spans) {
    if (span.lane == lane) sum = add(sum, span.end - span.begin);
  }
  return sum;
}

Bytes peak(const LiveCurve& curve) {
  Bytes most;
  for (const LivePoint& point : curve.points) most = std::max(most, point.bytes);
  return most;
}

const LiveCurve* find_curve(const Trace& trace, std::string_view space) {
  const auto found = std::find_if(trace.memory.begin(), trace.memory.end(),
                                  [space](const LiveCurve& curve) { return curve.space == space; });
  return found == trace.memory.end() ? nullptr : &*found;
}

}  // namespace fpdt
