// Sorts spans onto lanes.
#include "fpdt/report/timeline.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "fpdt/report/axis.h"
#include "fpdt/report/compare.h"
#include "fpdt/report/walk.h"

namespace fpdt {
namespace {

// "step", or "shown" when the trace holds some of its calls only.
std::string_view extent(const TracedRun& run) {
  std::size_t ops = 0;
  for (const Call& call : *run.calls) ops += run.program->blocks[index(call.block)].ops.size();
  return run.trace->spans.size() == ops ? "step" : "shown";
}

// The highest live bytes of each run: those that it recorded, or, where no run did, those of its
// spans.
std::vector<std::int64_t> peaks(const std::vector<TracedRun>& runs, MemorySpace space) {
  const auto curve = [&](const TracedRun& run) { return find_curve(*run.trace, word(space)); };
  const bool recorded = std::any_of(runs.begin(), runs.end(), curve);
  std::vector<std::int64_t> all;
  for (const TracedRun& run : runs) {
    if (recorded) {
      all.push_back(curve(run) == nullptr ? 0 : peak(*curve(run)).value);
    } else {
      all.push_back(find_peak(find_live(run), space).bytes.value);
    }
  }
  return all;
}

// For each lane, whether it runs for less than a hundredth of the step on each of several ranks.
std::vector<bool> idle_lanes(const TimelineData& data) {
  constexpr std::int64_t kPart = 100;
  std::vector<bool> idle;
  for (std::size_t lane = 0; lane < data.times.lanes.size(); ++lane) {
    const auto runs = [&](const LaneTimes& times, std::int64_t end) {
      return kPart * busy(times.lanes[lane], 0, end) >= end;
    };
    const bool any = std::any_of(data.ranks.begin(), data.ranks.end(),
                                 [&](const LaneTimes& rank) { return runs(rank, data.end); });
    idle.push_back(data.ranks.size() > 1 && !any && !runs(data.times, data.live.end));
  }
  return idle;
}

}  // namespace

LaneTimes lane_times(const TracedRun& run) {
  const Program& program = *run.program;
  LaneTimes times;
  times.lanes.resize(program.lanes.size());
  const std::vector<std::vector<OpKind>> kinds = op_kinds(*program.schedule);
  walk(run, [&](const OpSpan& one, const Expansion& expansion) {
    if (one.span < 0) return;
    const OpKind kind = kinds[index(expansion.call().block)][index(one.op)];
    times.lanes[index(one.plain->lane)].push_back({one.begin, one.end, kind, {one.call, one.op}});
    if (one.plain->op->lane.kind != LaneKind::compute) return;
    if (times.calls.empty() || times.calls.back().call != one.call) {
      times.calls.push_back({one.begin, one.end, one.call});
    }
    times.calls.back().end = std::max(times.calls.back().end, one.end);
  });
  return times;
}

std::string phase_of(const std::string& block) {
  for (const std::string_view visit : {"forward", "rerun", "backward"}) {
    if (block.starts_with(std::string(visit) + '_')) return std::string(visit);
  }
  return block;
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

const Live* TimelineData::measured(MemorySpace space) const {
  const auto found = lives.find(fullest[index(static_cast<int>(space))]);
  return found == lives.end() ? nullptr : &found->second;
}

TimelineData timeline_data(const TimelinePicture& picture) {
  TimelineData data{&picture, find_live(picture.run), lane_times(picture.run), 0, {}, {}, {}, {}};
  tint_heaviest(data.live);
  data.end = data.live.end;
  const std::vector<TracedRun>& runs = picture.measured;
  if (runs.empty()) return data;
  const auto end = [&](std::size_t rank) { return duration(*runs[rank].trace) + runs[rank].shift; };
  std::vector<std::size_t> order(runs.size());
  std::iota(order.begin(), order.end(), 0);
  // The last and the fullest ranks tell most; the others follow by number.
  const std::size_t last = *std::max_element(
      order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return end(a) < end(b); });
  data.end = std::max(data.end, end(last));
  for (std::size_t space = 0; space < data.fullest.size(); ++space) {
    const std::vector<std::int64_t> bytes = peaks(runs, static_cast<MemorySpace>(space));
    const std::size_t rank = index(std::max_element(bytes.begin(), bytes.end()) - bytes.begin());
    data.fullest[space] = rank;
    if (data.lives.contains(rank)) continue;
    data.lives.emplace(rank, find_live(runs[rank])).first->second.tint = data.live.tint;
  }
  const auto tells = [&](std::size_t rank) {
    return rank == last || rank == data.fullest[0] || rank == data.fullest[1];
  };
  std::stable_partition(order.begin(), order.end(), tells);
  order.resize(std::min(order.size(), kMostRanks));
  std::sort(order.begin(), order.end());
  data.drawn = picture.rows.empty() ? std::move(order) : picture.rows;
  for (const TracedRun& run : runs) data.ranks.push_back(lane_times(run));
  data.idle = idle_lanes(data);
  return data;
}

std::string label_of(const TimelineData& data, std::size_t rank) {
  const Trace& trace = *data.picture->measured[rank].trace;
  return data.ranks.size() == 1 ? trace.source : fmt::format("rank {}", trace.rank);
}

std::string key_to_ranks(const TimelineData& data) {
  if (data.ranks.empty()) return "";
  const std::vector<TracedRun>& runs = data.picture->measured;
  std::string text =
      fmt::format("coloured areas and upper rows: {}; black lines and lower rows: {}",
                  data.picture->run.trace->source, runs.front().trace->source);
  if (runs.size() == 1) return text;
  const auto [device, host] = data.fullest;
  text += fmt::format(", on one clock; the lines are of {}, whose memory is fullest",
                      label_of(data, device));
  if (host != device && has_pinned(*data.live.schedule)) {
    text += fmt::format(" on the device, and of {} on the host", label_of(data, host));
  }
  std::set<std::int64_t> left_out;
  for (std::size_t rank = 0; rank < runs.size(); ++rank) {
    const bool drawn = std::binary_search(data.drawn.begin(), data.drawn.end(), rank);
    if (!drawn) left_out.insert(runs[rank].trace->rank);
  }
  return left_out.empty()
             ? text
             : fmt::format("{}; rows of {} are left out", text, ranges("rank", left_out));
}

KindTimes kind_times(const LaneTimes& times, std::int64_t from, std::int64_t to) {
  KindTimes sums{};
  for (const std::vector<LaneOp>& lane : times.lanes) {
    for (const LaneOp& op : lane) {
      const std::int64_t taken = std::min(op.end, to) - std::max(op.begin, from);
      sums[static_cast<std::size_t>(op.kind)] += std::max<std::int64_t>(taken, 0);
    }
  }
  return sums;
}

KindTimes mean_kind_times(const std::vector<LaneTimes>& ranks, std::int64_t from, std::int64_t to) {
  KindTimes sums{};
  for (const LaneTimes& rank : ranks) {
    const KindTimes one = kind_times(rank, from, to);
    for (std::size_t kind = 0; kind < sums.size(); ++kind) sums[kind] += one[kind];
  }
  for (std::int64_t& sum : sums) sum /= std::max<std::int64_t>(std::ssize(ranks), 1);
  return sums;
}

std::vector<Fact> facts(const TimelineData& data) {
  const TimelinePicture& picture = *data.picture;
  const std::string& source = picture.run.trace->source;
  const bool measured = !data.ranks.empty();
  const std::string beside = measured ? picture.measured.front().trace->source : "";
  std::vector<Fact> all;
  const std::int64_t taken = data.live.end - data.live.begin;
  const std::string_view what = extent(picture.run);
  all.push_back({fmt::format("{}, {}", what, source), format_nanoseconds(taken)});
  if (measured) {
    std::int64_t begin = data.end;
    std::int64_t end = 0;
    for (const TracedRun& run : picture.measured) {
      begin = std::min(begin, run.shift);
      end = std::max(end, run.shift + duration(*run.trace));
    }
    all.push_back({data.ranks.size() == 1
                       ? fmt::format("{}, {}", what, beside)
                       : fmt::format("{} of {} ranks, {}", what, data.ranks.size(), beside),
                   format_nanoseconds(end - begin)});
    all.push_back({fmt::format("{} against {}", source, beside),
                   format_error(static_cast<double>(taken), static_cast<double>(end - begin))});
  }
  all.insert(all.end(), picture.rates.begin(), picture.rates.end());
  for (const MemorySpace space : {MemorySpace::device, MemorySpace::host_pinned}) {
    const bool device = space == MemorySpace::device;
    if (!device && !has_pinned(*data.live.schedule)) continue;
    const Bytes outside = device ? picture.outside : Bytes{};
    const Bytes budget = device ? picture.device_budget : picture.host_budget;
    const Bytes arena = arena_end(*data.live.schedule, space);
    std::string text = format_bytes(arena + outside);
    if (budget.value > 0) text += fmt::format(" of {}", format_bytes(budget));
    std::string name = device ? "device" : "pinned host, each rank";
    if (outside.value > 0) name += fmt::format(", {} outside the arena", format_bytes(outside));
    all.push_back({name, text});
    if (!measured) continue;
    all.push_back({fmt::format("{} live, {} / {}", device ? "device" : "host", source, beside),
                   fmt::format("{} / {}", format_bytes(find_peak(data.live, space).bytes),
                               format_bytes(find_peak(*data.measured(space), space).bytes))});
  }
  return all;
}

bool has_pinned(const Schedule& schedule) {
  return std::any_of(schedule.buffers.begin(), schedule.buffers.end(),
                     [](const Buffer& buffer) { return buffer.space == MemorySpace::host_pinned; });
}

Bytes arena_end(const Schedule& schedule, MemorySpace space) {
  Bytes end;
  for (const Buffer& buffer : schedule.buffers) {
    if (buffer.space != space || buffer.offset < 0) continue;
    end = std::max(end, Bytes{buffer.offset} + buffer.bytes());
  }
  return end;
}

BudgetLine budget_line(const TimelinePicture& picture, MemorySpace space) {
  if (space == MemorySpace::host_pinned) return {"budget", picture.host_budget};
  if (picture.device_budget.value <= 0) return {"budget", {}};
  return {picture.outside.value > 0 ? "budget less outside" : "budget",
          picture.device_budget - picture.outside};
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
