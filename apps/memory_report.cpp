// One row for each space.
#include "memory_report.h"

#include <algorithm>

#include <fmt/format.h>

#include "fpdt/io/json.h"

namespace fpdt {
namespace {

// The planner predicts spaces whose size is a choice; what the host holds of tokens and scalars is not one.
std::optional<Bytes> predicted(const MemoryReport& report, MemorySpace space) {
  if (!report.predicted || space == MemorySpace::host) return std::nullopt;
  return space == MemorySpace::device ? report.predicted->device : report.predicted->host_pinned;
}

bool within(const MemoryReport& report, const MemoryUse& use) {
  const std::optional<Bytes> bytes = predicted(report, use.space);
  return !bytes || std::max(use.arena, use.resident) <= *bytes;
}

}  // namespace

std::string table(const MemoryReport& report) {
  std::string text = fmt::format("{:<14} {:>11} {:>11} {:>11} {:>11} {:>11}\n", "memory of a rank",
                                 "predicted", "arena", "live", "touched", "resident");
  for (const MemoryUse& use : report.spaces) {
    const std::optional<Bytes> bytes = predicted(report, use.space);
    text += fmt::format("{:<16} {:>11} {:>11} {:>11} {:>11} {:>11}{}\n", word(use.space),
                        bytes ? format_bytes(*bytes) : "-", format_bytes(use.arena),
                        format_bytes(use.live), format_bytes(use.touched), format_bytes(use.resident),
                        within(report, use) ? "" : "  over the prediction");
  }
  for (const MemoryUse& use : report.spaces) {
    if (!use.difference.empty()) {
      text += fmt::format("{}, {}\n", word(use.space), use.difference);
    }
  }
  const std::int64_t here = report.solo ? 1 : report.ranks;
  text += fmt::format("peak resident memory of the process, with {} {}: {}\n", here,
                      here == 1 ? "rank" : "ranks", format_bytes(report.peak_resident));
  return text;
}

std::string json(const MemoryReport& report) {
  std::string spaces;
  for (const MemoryUse& use : report.spaces) {
    const std::optional<Bytes> bytes = predicted(report, use.space);
    spaces += fmt::format(
        "\"{}\":{{\"predicted\":{},\"arena\":{},\"live\":{},\"touched\":{},\"resident\":{},"
        "\"difference\":{}}},",
        word(use.space), bytes ? fmt::format("{}", bytes->value) : "null", use.arena.value,
        use.live.value, use.touched.value, use.resident.value, json_string(use.difference));
  }
  return fmt::format("{{{}\"peak_resident\":{},\"as_predicted\":{}}}", spaces,
                     report.peak_resident.value, agrees(report));
}

bool agrees(const MemoryReport& report) {
  return std::all_of(report.spaces.begin(), report.spaces.end(), [&](const MemoryUse& use) {
    return within(report, use) && use.difference.empty();
  });
}

}  // namespace fpdt
