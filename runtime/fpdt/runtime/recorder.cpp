// Builds spans and live bytes from the times of a step.
#include "fpdt/runtime/recorder.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/runtime/arena.h"
#include "fpdt/runtime/resolve.h"

namespace fpdt {
namespace {

// Tracks which version each slot holds, and collects the changes of the live bytes.
class LiveBytes {
 public:
  explicit LiveBytes(const Schedule& schedule) : schedule_(schedule) {
    for (const Buffer& buffer : schedule.buffers) {
      held_.emplace_back(static_cast<std::size_t>(buffer.slots));
      if (buffer.role != Role::temporary) {
        change(buffer, 0, buffer.slots * buffer.slot_bytes().value);
      }
    }
  }

  void touch(BufferIndex index, std::int64_t version, const Span& span) {
    const Buffer& buffer = schedule_.buffers[static_cast<std::size_t>(index)];
    if (buffer.role != Role::temporary) return;
    Held& held =
        held_[static_cast<std::size_t>(index)][static_cast<std::size_t>(version % buffer.slots)];
    if (held.version != version) {
      // An update in place reads one version and writes the next into the same slot.
      held.end = std::max(held.begin, std::min(held.end, span.begin));
      close(buffer, held);
      held = {version, span.begin, span.end};
    }
    held.begin = std::min(held.begin, span.begin);
    held.end = std::max(held.end, span.end);
  }

  std::vector<LiveCurve> curves() {
    for (std::size_t i = 0; i < held_.size(); ++i) {
      for (Held& held : held_[i]) close(schedule_.buffers[i], held);
    }
    std::vector<LiveCurve> all;
    for (const MemorySpace space : kMemorySpaces) all.push_back(curve(space));
    return all;
  }

 private:
  struct Held {
    std::int64_t version = -1;
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };
  struct Change {
    std::int64_t time = 0;
    std::int64_t bytes = 0;
  };

  void change(const Buffer& buffer, std::int64_t time, std::int64_t bytes) {
    changes_[static_cast<std::size_t>(buffer.space)].push_back({time, bytes});
  }

  void close(const Buffer& buffer, Held& held) {
    if (held.version < 0) return;
    change(buffer, held.begin, buffer.slot_bytes().value);
    change(buffer, held.end, -buffer.slot_bytes().value);
  }

  LiveCurve curve(MemorySpace space) {
    std::vector<Change>& changes = changes_[static_cast<std::size_t>(space)];
    // At equal times frees come first: what ends at an instant is free for what begins then.
    std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
      return a.time != b.time ? a.time < b.time : a.bytes < b.bytes;
    });
    LiveCurve curve{std::string(word(space)), arena_bytes(schedule_, space), {}};
    Bytes live;
    for (const Change& one : changes) {
      live += Bytes{one.bytes};
      if (curve.points.empty() || curve.points.back().time != one.time) {
        curve.points.push_back({one.time, live});
      }
      curve.points.back().bytes = live;
    }
    return curve;
  }

  const Schedule& schedule_;
  std::vector<std::vector<Held>> held_;  // [buffer][slot]
  std::array<std::vector<Change>, kMemorySpaces.size()> changes_;
};

}  // namespace

std::int64_t op_count(const Program& program, std::span<const Call> calls) {
  std::int64_t count = 0;
  for (const Call& call : calls) {
    count += std::ssize(program.blocks[static_cast<std::size_t>(call.block)].ops);
  }
  return count;
}

Trace make_trace(const Program& program, std::span<const Call> calls,
                 std::span<const Interval> intervals, std::int64_t rank) {
  Trace trace;
  trace.source = "measured";
  trace.rank = rank;
  for (const Lane& lane : program.lanes) {
    trace.lanes.push_back(fmt::format("{}.{}", word(lane.kind), lane.index));
  }
  std::vector<std::int32_t> first_op;  // of each block in trace.ops
  for (const Block& block : program.schedule->blocks) {
    first_op.push_back(static_cast<std::int32_t>(trace.ops.size()));
    for (const Op& op : block.ops) trace.ops.push_back(block.name + "." + op.name);
  }
  std::int64_t start = intervals.empty() ? 0 : intervals.front().begin;
  for (const Interval& interval : intervals) start = std::min(start, interval.begin);
  trace.start = start;

  LiveBytes live(*program.schedule);
  Expansion expansion(program);
  std::size_t issued = 0;
  std::int32_t number = 0;
  for (const Call& call : calls) {
    expansion.begin(call);
    std::int32_t name = first_op[static_cast<std::size_t>(call.block)];
    for (const PlainOp& op : program.blocks[static_cast<std::size_t>(call.block)].ops) {
      const Interval& interval = intervals[issued++];
      trace.spans.push_back(
          {name++, op.lane, number, interval.begin - start, interval.end - start});
      for (const PlainUse& use : op.uses) {
        live.touch(use.buffer, expansion.version(use), trace.spans.back());
      }
    }
    ++number;
  }
  FPDT_ASSERT(issued == intervals.size());
  trace.memory = live.curves();
  return trace;
}

}  // namespace fpdt
