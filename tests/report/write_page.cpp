// Writes the HTML timeline of a small step, followed by a script of expectations for a browser. The
// expectations are computed without the page's own script.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>

#include <fmt/format.h>

#include "fpdt/cost/demand.h"
#include "fpdt/report/timeline_html.h"

#include "made_up.h"

namespace fpdt {
namespace {

std::string categories(const LivePeak& live) {
  std::string text;
  for (const std::int64_t bytes : live.parts) {
    text += fmt::format("{}{}", text.empty() ? "" : ",", bytes);
  }
  return text;
}

// The expectation for op `span` of the trace: its time, its names, and its operands with versions.
std::string op_expectation(const test::MadeUp& made, std::size_t span) {
  const Trace& trace = made.trace;
  Expansion expansion(made.program);
  std::string operands;
  std::size_t number = 0;
  for (const Call& call : made.schedule.train) {
    expansion.begin(call);
    for (const PlainOp& op : made.program.blocks[static_cast<std::size_t>(call.block)].ops) {
      if (number++ != span) continue;
      for (const PlainUse& use : op.uses) {
        const Buffer& buffer = made.schedule.buffers[static_cast<std::size_t>(use.buffer)];
        operands += fmt::format("{}\"{}[{}]\"", operands.empty() ? "" : ",", buffer.name,
                                expansion.version(use));
      }
    }
  }
  return fmt::format("{{\"name\":\"{}\",\"lane\":{},\"begin\":{},\"end\":{},\"operands\":[{}]}}",
                     trace.ops[static_cast<std::size_t>(trace.spans[span].op)],
                     trace.spans[span].lane, trace.spans[span].begin, trace.spans[span].end,
                     operands);
}

// The longest op whose lane was idle before it: the op whose end it waited for, and its work.
std::string wait_expectation(const test::MadeUp& made) {
  const std::vector<Span>& spans = made.trace.spans;
  const auto asked = demands(made.schedule);
  std::vector<std::vector<std::size_t>> lanes(made.program.lanes.size());  // spans
  Expansion expansion(made.program);
  std::size_t number = 0;
  std::int64_t longest = 0;
  std::string found;
  for (const Call& call : made.schedule.train) {
    expansion.begin(call);
    const PlainBlock& block = made.program.blocks[index(call.block)];
    for (std::size_t i = 0; i < block.ops.size(); ++i, ++number) {
      std::vector<std::size_t>& lane = lanes[index(block.ops[i].lane)];
      const std::int64_t free = lane.empty() ? 0 : spans[lane.back()].end;
      const Span& span = spans[number];
      lane.push_back(number);
      if (span.begin == free || span.end - span.begin <= longest) continue;
      for (const After& after : block.ops[i].after) {
        const LanePosition position = expansion.position(after);
        if (position < 0) continue;
        const PlainOp& other = made.program.blocks[index(after.block)].ops[index(after.op)];
        const Span& by = spans[lanes[index(other.lane)][index(position)]];
        if (by.end != span.begin) continue;
        longest = span.end - span.begin;
        const Demand& one = asked[index(call.block)][i];
        found = fmt::format(
            "{{\"lane\":{},\"begin\":{},\"end\":{},\"wait\":{},\"by\":\"{}\",\"flops\":{},"
            "\"bytes\":{}}}",
            span.lane, span.begin, span.end, span.begin - free, made.trace.ops[index(by.op)],
            one.flops, one.work == Work::collective ? one.sent : one.bytes + one.partial);
      }
    }
  }
  return found;
}

std::string expectations(const test::MadeUp& made) {
  const Live live = find_live(made.run());
  const std::int64_t middle = (live.begin + live.end) / 2;
  const LivePeak device = find_live_at(live, MemorySpace::device, middle);
  const LivePeak host = find_live_at(live, MemorySpace::host_pinned, middle);
  // The longest op, so that a pointer can hit it.
  const auto longest = std::max_element(
      made.trace.spans.begin(), made.trace.spans.end(),
      [](const Span& a, const Span& b) { return a.end - a.begin < b.end - b.begin; });
  return fmt::format(
      "<script>const expected = {{\"ops\":{},\"end\":{},\"devicePeak\":{},\"hostPeak\":{},"
      "\"middle\":{},\"deviceThen\":[{}],\"hostThen\":[{}],\"op\":{},\"wait\":{}}};</script>\n",
      made.trace.spans.size(), live.end, find_peak(live, MemorySpace::device).bytes.value,
      find_peak(live, MemorySpace::host_pinned).bytes.value, middle, categories(device),
      categories(host),
      op_expectation(made, static_cast<std::size_t>(longest - made.trace.spans.begin())),
      wait_expectation(made));
}

void write(const std::string& path) {
  const test::MadeUp made(3);
  TimelinePicture picture{made.run(), "A <small> step", "two & three", {}, {}, {}, {made.second()}};
  picture.device_budget = arena_end(made.schedule, MemorySpace::device) + Bytes{2000};
  picture.host_budget = arena_end(made.schedule, MemorySpace::host_pinned) + Bytes{500};
  std::ofstream file(path, std::ios::binary);
  file << timeline_html(picture) << expectations(made);
}

}  // namespace
}  // namespace fpdt

int main(int count, char** arguments) {
  if (count != 2) return 2;
  try {
    fpdt::write(arguments[1]);
  } catch (const std::exception& error) {
    std::fputs(error.what(), stderr);
    return 1;
  }
  return 0;
}
