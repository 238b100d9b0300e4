// One row for each space.
#include "run/memory_report.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/base/math.h"
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

// Whether the memory is one that the operating system does not count.
bool off_the_host(const MemoryReport& report, const MemoryUse& use) {
  return !report.drivers.empty() && use.space == MemorySpace::device;
}

}  // namespace

std::string table(const MemoryReport& report) {
  std::string text = fmt::format("{:<14} {:>11} {:>11} {:>11} {:>11} {:>11}\n", "memory of a rank",
                                 "unplaced", "arena", "live", "touched", "resident");
  for (const MemoryUse& use : report.spaces) {
    text += fmt::format("{:<16} {:>11} {:>11} {:>11} {:>11} {:>11}{}\n", word(use.space),
                        format_bytes(predicted(report, use.space)), format_bytes(use.arena),
                        format_bytes(use.live), format_bytes(use.touched),
                        off_the_host(report, use) ? "-" : format_bytes(use.resident),
                        within(report, use) ? "" : "  over the prediction");
  }
  if (!report.spaces.empty()) {
    text +=
        "unplaced: the upper bound before placement; arena: as planned; the others are measured\n";
  }
  for (const MemoryUse& use : report.spaces) {
    if (!use.difference.empty()) {
      text += fmt::format("{}, {}\n", word(use.space), use.difference);
    }
  }
  for (const MemoryUse& use : report.spaces) {
    if (!use.untouched) continue;
    text += fmt::format(
        "{}: counted on the device; {} of scratch was not used, {} lies between operands\n",
        word(use.space), format_bytes(use.untouched->scratch),
        format_bytes(use.untouched->between));
  }
  text += fmt::format("peak resident memory of the process, with {} {}: {}\n", report.ranks,
                      report.ranks == 1 ? "rank" : "ranks", format_bytes(report.peak_resident));
  if (!report.drivers.empty()) {
    text += fmt::format(
        "host memory, by the system: {} resident, {} locked, {} pinned by drivers that report it\n",
        format_bytes(report.process.resident), format_bytes(report.process.locked),
        format_bytes(report.process.pinned));
    text += table(report.drivers);
  }
  return text;
}

Json json(const MemoryReport& report) {
  Json result;
  for (const MemoryUse& use : report.spaces) {
    Json& space = result[std::string(word(use.space))];
    space = {{"predicted", predicted(report, use.space).value},
             {"arena", use.arena.value},
             {"live", use.live.value},
             {"touched", use.touched.value},
             {"resident", off_the_host(report, use) ? Json() : Json(use.resident.value)},
             {"untouched", Json()},
             {"difference", use.difference}};
    if (use.untouched) {
      space["untouched"] = {{"scratch", use.untouched->scratch.value},
                            {"between", use.untouched->between.value}};
    }
  }
  result["peak_resident"] = report.peak_resident.value;
  result["process"] = {{"resident", report.process.resident.value},
                       {"locked", report.process.locked.value},
                       {"pinned", report.process.pinned.value}};
  result["driver"] = json(report.drivers);
  result["as_predicted"] = agrees(report);
  result["deviations"] = deviations(report);
  return result;
}

Json peaks_json(const MemoryReport& report) {
  Bytes arena, touched, resident, host_arena, host_touched, host_resident;
  for (const MemoryUse& use : report.spaces) {
    const bool device = use.space == MemorySpace::device;
    (device ? arena : host_arena) += use.arena;
    (device ? touched : host_touched) += use.touched;
    (device ? resident : host_resident) += use.resident;
  }
  const Prediction& most = report.predicted;
  Json result;
  result["predicted"] = {{"device_peak_bytes", arena.value},
                         {"host_peak_bytes", host_arena.value},
                         {"device_bound_bytes", most.device.value},
                         {"host_bound_bytes", (most.host_pinned + most.host).value}};
  result["measured"] = {{"device_peak_bytes", touched.value},
                        {"host_peak_bytes", host_touched.value},
                        {"os_device_bytes", report.drivers.empty() ? Json(resident.value) : Json()},
                        {"os_host_bytes", host_resident.value},
                        {"os_process_bytes", report.peak_resident.value}};
  return result;
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
  for (const std::string& one : deviations(report.drivers)) found.push_back(one);
  return found;
}

bool agrees(const MemoryReport& report) { return deviations(report).empty(); }

}  // namespace fpdt
