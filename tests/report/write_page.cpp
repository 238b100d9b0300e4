// Writes the HTML timeline of a small step, followed by a script of expectations for a browser. The
// expectations are computed without the page's own script.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>

#include <fmt/format.h>

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
      "\"middle\":{},\"deviceThen\":[{}],\"hostThen\":[{}],\"op\":{}}};</script>\n",
      made.trace.spans.size(), live.end, find_peak(live, MemorySpace::device).bytes.value,
      find_peak(live, MemorySpace::host_pinned).bytes.value, middle, categories(device),
      categories(host),
      op_expectation(made, static_cast<std::size_t>(longest - made.trace.spans.begin())));
}

void write(const std::string& path) {
  const test::MadeUp made(3);
  TimelinePicture picture{made.run(), "A <small> step", "two & three", {}, {}, {}, {made.second()}};
  picture.device_capacity = arena_end(made.schedule, MemorySpace::device) + Bytes{2000};
  picture.host_capacity = arena_end(made.schedule, MemorySpace::host_pinned) + Bytes{500};
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
