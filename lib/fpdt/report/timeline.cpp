// Sorts spans onto lanes.
#include "fpdt/report/timeline.h"

#include <algorithm>

#include <fmt/format.h>

#include "fpdt/report/axis.h"
#include "fpdt/report/walk.h"

namespace fpdt {
namespace {

// "step", or "shown" when the trace holds some of its calls only.
std::string_view extent(const TracedRun& run) {
  std::size_t ops = 0;
  for (const Call& call : *run.calls) ops += run.program->blocks[index(call.block)].ops.size();
  return run.trace->spans.size() == ops ? "step" : "shown";
}

}  // namespace

LaneTimes lane_times(const TracedRun& run) {
  const Program& program = *run.program;
  LaneTimes times;
  times.lanes.resize(program.lanes.size());
  // The kind of each op of each block.
  std::vector<std::vector<OpKind>> kinds;
  for (const Block& block : program.schedule->blocks) {
    kinds.emplace_back();
    for (const Op& op : block.ops) kinds.back().push_back(kind_of(op));
  }
  walk(run, [&](const OpSpan& one, const Expansion& expansion) {
    if (one.span < 0) return;
    const Span& span = run.trace->spans[index(one.span)];
    const OpKind kind = kinds[index(expansion.call().block)][index(one.op)];
    times.lanes[index(one.plain->lane)].push_back({span.begin, span.end, kind, {one.call, one.op}});
    if (one.plain->op->lane.kind != LaneKind::compute) return;
    if (times.calls.empty() || times.calls.back().call != one.call) {
      times.calls.push_back({span.begin, span.end, one.call});
    }
    times.calls.back().end = std::max(times.calls.back().end, span.end);
  });
  return times;
}

std::int64_t busy(const std::vector<LaneOp>& lane, std::int64_t from, std::int64_t to) {
  std::int64_t sum = 0;
  for (const LaneOp& op : lane) {
    sum += std::max<std::int64_t>(0, std::min(op.end, to) - std::max(op.begin, from));
  }
  return sum;
}

CallRange middle_call(const TracedRun& run) {
  const LaneTimes times = lane_times(run);
  std::vector<std::int64_t> taken(run.program->blocks.size(), 0);
  const auto block = [&](const CallBar& bar) { return index((*run.calls)[index(bar.call)].block); };
  for (const CallBar& bar : times.calls) taken[block(bar)] += bar.end - bar.begin;
  if (times.calls.empty()) return {};
  const auto most = index(std::max_element(taken.begin(), taken.end()) - taken.begin());
  std::vector<std::int32_t> calls;
  for (const CallBar& bar : times.calls) {
    if (block(bar) == most) calls.push_back(bar.call);
  }
  const std::int32_t middle = calls[calls.size() / 2];
  return {middle, middle + 1};
}

std::vector<Fact> facts(const TimelinePicture& picture, const Live& live, const Live* second) {
  const std::string& source = picture.run.trace->source;
  std::vector<Fact> all;
  const std::int64_t taken = live.end - live.begin;
  const std::string_view what = extent(picture.run);
  all.push_back({fmt::format("{}, {}", what, source), format_nanoseconds(taken)});
  if (second != nullptr) {
    const std::int64_t other = second->end - second->begin;
    const double more =
        taken > 0 ? 100.0 * static_cast<double>(other - taken) / static_cast<double>(taken) : 0;
    all.push_back({fmt::format("{}, {}", what, picture.second->source),
                   fmt::format("{} ({:+.1f} %)", format_nanoseconds(other), more)});
  }
  for (const MemorySpace space : {MemorySpace::device, MemorySpace::host_pinned}) {
    const bool device = space == MemorySpace::device;
    const Bytes capacity = device ? picture.device_capacity : picture.host_capacity;
    std::string text = format_bytes(find_peak(live, space).bytes);
    if (capacity.value > 0) text += fmt::format(" of {}", format_bytes(capacity));
    all.push_back({device ? "device peak" : "pinned host peak, each rank", text});
    if (second == nullptr) continue;
    all.push_back({fmt::format("{}, {}", device ? "device" : "host", picture.second->source),
                   format_bytes(find_peak(*second, space).bytes)});
  }
  return all;
}

Bytes arena_end(const Schedule& schedule, MemorySpace space) {
  Bytes end;
  for (const Buffer& buffer : schedule.buffers) {
    if (buffer.space != space || buffer.offset < 0) continue;
    end = std::max(end, Bytes{buffer.offset} + buffer.bytes());
  }
  return end;
}

std::string_view title_of(MemorySpace space) {
  switch (space) {
    case MemorySpace::device:
      return "Device memory";
    case MemorySpace::host_pinned:
      return "Pinned host memory";
    case MemorySpace::host:
      return "Host memory";
  }
  FPDT_ASSERT(false);
  return "";
}

}  // namespace fpdt
