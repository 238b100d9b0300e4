// One row for each space.
#include "memory_report.h"

#include <algorithm>

#include <fmt/format.h>

#include "fpdt/base/math.h"
#include "fpdt/io/json.h"
#include "fpdt/runtime/arena.h"

namespace fpdt {
namespace {

Bytes predicted(const MemoryReport& report, MemorySpace space) {
  if (space == MemorySpace::device) return report.predicted.device;
  return space == MemorySpace::host_pinned ? report.predicted.host_pinned : report.predicted.host;
}

bool within(const MemoryReport& report, const MemoryUse& use) {
  const std::int64_t most = round_up(predicted(report, use.space).value, page_bytes().value);
  return std::max(use.arena, use.resident).value <= most;
}

// Of memory that the operating system does not count.
bool off_the_host(const MemoryReport& report, const MemoryUse& use) {
  return report.driver && use.space == MemorySpace::device;
}

}  // namespace

std::string table(const MemoryReport& report) {
  std::string text = fmt::format("{:<14} {:>11} {:>11} {:>11} {:>11} {:>11}\n", "memory of a rank",
                                 "predicted", "arena", "live", "touched", "resident");
  for (const MemoryUse& use : report.spaces) {
    text += fmt::format("{:<16} {:>11} {:>11} {:>11} {:>11} {:>11}{}\n", word(use.space),
                        format_bytes(predicted(report, use.space)), format_bytes(use.arena),
                        format_bytes(use.live), format_bytes(use.touched),
                        off_the_host(report, use) ? "-" : format_bytes(use.resident),
                        within(report, use) ? "" : "  over the prediction");
  }
  for (const MemoryUse& use : report.spaces) {
    if (!use.difference.empty()) {
      text += fmt::format("{}, {}\n", word(use.space), use.difference);
    }
  }
  for (const MemoryUse& use : report.spaces) {
    if (!use.untouched) continue;
    text += fmt::format("{}: counted on the device; {} of scratch were not used, {} lie between\n",
                        word(use.space), format_bytes(use.untouched->scratch),
                        format_bytes(use.untouched->between));
  }
  const std::int64_t here = report.solo ? 1 : report.ranks;
  text += fmt::format("peak resident memory of the process, with {} {}: {}\n", here,
                      here == 1 ? "rank" : "ranks", format_bytes(report.peak_resident));
  if (report.driver) {
    text += fmt::format(
        "host memory by the system: {} resident, {} locked, {} pinned by drivers that tell it\n",
        format_bytes(report.process.resident), format_bytes(report.process.locked),
        format_bytes(report.process.pinned));
    text += table(*report.driver);
  }
  return text;
}

std::string json(const MemoryReport& report) {
  const auto resident = [&](const MemoryUse& use) {
    return off_the_host(report, use) ? "null" : std::to_string(use.resident.value);
  };
  const auto untouched = [](const MemoryUse& use) -> std::string {
    if (!use.untouched) return "null";
    return fmt::format(R"({{"scratch":{},"between":{}}})", use.untouched->scratch.value,
                       use.untouched->between.value);
  };
  std::string spaces;
  for (const MemoryUse& use : report.spaces) {
    spaces += fmt::format(
        "\"{}\":{{\"predicted\":{},\"arena\":{},\"live\":{},\"touched\":{},\"resident\":{},"
        "\"untouched\":{},\"difference\":{}}},",
        word(use.space), predicted(report, use.space).value, use.arena.value, use.live.value,
        use.touched.value, resident(use), untouched(use), json_string(use.difference));
  }
  std::string wrong;
  for (const std::string& one : deviations(report)) {
    wrong += fmt::format("{}{}", wrong.empty() ? "" : ",", json_string(one));
  }
  const ProcessMemory& process = report.process;
  return fmt::format(
      "{{{}\"peak_resident\":{},\"process\":{{\"resident\":{},\"locked\":{},\"pinned\":{}}},"
      "\"driver\":{},\"as_predicted\":{},\"deviations\":[{}]}}",
      spaces, report.peak_resident.value, process.resident.value, process.locked.value,
      process.pinned.value, report.driver ? json(*report.driver) : "null", agrees(report), wrong);
}

std::string peaks_json(const MemoryReport& report) {
  Bytes arena, touched, resident, host_arena, host_touched, host_resident;
  for (const MemoryUse& use : report.spaces) {
    const bool device = use.space == MemorySpace::device;
    (device ? arena : host_arena) += use.arena;
    (device ? touched : host_touched) += use.touched;
    (device ? resident : host_resident) += use.resident;
  }
  const Prediction& most = report.predicted;
  return fmt::format(
      R"("predicted":{{"device_peak_bytes":{},"host_peak_bytes":{},"device_bound_bytes":{},)"
      R"("host_bound_bytes":{}}},"measured":{{"device_peak_bytes":{},"host_peak_bytes":{},)"
      R"("os_device_bytes":{},"os_host_bytes":{},"os_process_bytes":{}}})",
      arena.value, host_arena.value, most.device.value, (most.host_pinned + most.host).value,
      touched.value, host_touched.value, report.driver ? "null" : std::to_string(resident.value),
      host_resident.value, report.peak_resident.value);
}

std::vector<std::string> deviations(const MemoryReport& report) {
  std::vector<std::string> found;
  for (const MemoryUse& use : report.spaces) {
    if (!within(report, use)) {
      found.push_back(fmt::format("{}: {} over the prediction of {}", word(use.space),
                                  format_bytes(std::max(use.arena, use.resident)),
                                  format_bytes(predicted(report, use.space))));
    }
    if (!use.difference.empty()) {
      found.push_back(fmt::format("{}: {}", word(use.space), use.difference));
    }
  }
  if (report.driver) {
    for (const std::string& one : deviations(*report.driver)) found.push_back(one);
  }
  return found;
}

bool agrees(const MemoryReport& report) { return deviations(report).empty(); }

}  // namespace fpdt
