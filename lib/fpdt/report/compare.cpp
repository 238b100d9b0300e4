// Sums spans by kind of op and by lane.
#include "fpdt/report/compare.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/report/palette.h"

namespace fpdt {
namespace {

constexpr std::size_t kCopies = kBodyNames.size();  // two more kinds: copies in, copies out

// The kind that an op counts as.
std::size_t number_of_kind(const Schedule& schedule, const Op& op) {
  const OpKind kind = kind_of(schedule, op);
  if (kind == OpKind::fetch) return kCopies;
  if (kind == OpKind::spill) return kCopies + 1;
  return op.body.index();
}

std::string_view name_of(std::size_t kind) {
  return kind < kCopies ? kBodyNames[kind] : word(kind == kCopies ? LaneKind::h2d : LaneKind::d2h);
}

// The kind of each op of a trace, in the order of Trace::ops.
std::vector<std::size_t> kinds_of(const Schedule& schedule) {
  std::vector<std::size_t> kinds;
  for (const Block& block : schedule.blocks) {
    for (const Op& op : block.ops) kinds.push_back(number_of_kind(schedule, op));
  }
  return kinds;
}

struct Sums {
  std::vector<ComparedTime> kinds = std::vector<ComparedTime>(kCopies + 2);
  std::vector<ComparedTime> lanes;
};

// Adds `weight` of the seconds of every span to `seconds` of its kind and lane.
void add_up(const Trace& trace, const std::vector<std::size_t>& kinds, double weight,
            double ComparedTime::*seconds, Sums& sums) {
  FPDT_ASSERT(trace.ops.size() == kinds.size() && trace.lanes.size() == sums.lanes.size());
  for (const Span& span : trace.spans) {
    const double took = static_cast<double>(span.end - span.begin) * 1e-9 * weight;
    sums.kinds[kinds[index(span.op)]].*seconds += took;
    sums.lanes[index(span.lane)].*seconds += took;
  }
}

double seconds(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

std::string row(const ComparedTime& one) {
  // Parts of a millisecond are noise, whatever their ratio.
  constexpr double kWorthComparing = 1e-3;
  const bool compares = std::max(one.predicted, one.measured) >= kWorthComparing;
  return fmt::format("{:<20} {:>8} {:>11.1f} {:>11.1f} {:>8}\n", one.what, one.ops,
                     one.predicted * 1e3, one.measured * 1e3,
                     compares ? format_error(one.predicted, one.measured) : "");
}

std::string json_list(const std::vector<ComparedTime>& list) {
  std::string text;
  for (const ComparedTime& one : list) {
    text += fmt::format("{}{{\"what\":\"{}\",\"ops\":{},\"predicted\":{:.9f},\"measured\":{:.9f}}}",
                        text.empty() ? "" : ",", one.what, one.ops, one.predicted, one.measured);
  }
  return text;
}

bool has_collectives(const Comparison& comparison) {
  return std::any_of(comparison.lanes.begin(), comparison.lanes.end(),
                     [](const auto& lane) { return lane.what.starts_with(word(LaneKind::comm)); });
}

}  // namespace

double relative_error(double predicted, double measured) {
  return measured > 0 ? (predicted - measured) / measured : 0;
}

std::string format_error(double predicted, double measured) {
  // Adding 0 makes a negative zero positive.
  const double percent = std::nearbyint(100 * relative_error(predicted, measured)) + 0.0;
  return fmt::format("{:+.0f} %", percent);
}

Comparison compare(const Schedule& schedule, const Trace& predicted,
                   const std::vector<Trace>& measured) {
  FPDT_ASSERT(!measured.empty());
  const std::vector<std::size_t> kinds = kinds_of(schedule);
  Sums sums;
  for (const std::string& lane : predicted.lanes) sums.lanes.push_back({lane, 0, 0, 0});
  for (const Span& span : predicted.spans) {
    ++sums.kinds[kinds[index(span.op)]].ops;
    ++sums.lanes[index(span.lane)].ops;
  }
  add_up(predicted, kinds, 1, &ComparedTime::predicted, sums);
  Comparison comparison;
  comparison.predicted_seconds = seconds(duration(predicted));
  comparison.measured_seconds = seconds(duration(measured));
  for (const Trace& trace : measured) {
    FPDT_ASSERT(trace.spans.size() == predicted.spans.size());
    add_up(trace, kinds, 1 / static_cast<double>(measured.size()), &ComparedTime::measured, sums);
  }
  for (std::size_t kind = 0; kind < sums.kinds.size(); ++kind) {
    if (sums.kinds[kind].ops == 0) continue;
    sums.kinds[kind].what = name_of(kind);
    comparison.kinds.push_back(sums.kinds[kind]);
  }
  comparison.lanes = std::move(sums.lanes);
  return comparison;
}

std::string table(const Comparison& comparison) {
  std::string text = fmt::format("{:<20} {:>8} {:>11} {:>11} {:>8}\n", "", "ops", "predicted ms",
                                 "measured ms", "error");
  std::int64_t ops = 0;
  for (const ComparedTime& one : comparison.kinds) ops += one.ops;
  text += row({"step", ops, comparison.predicted_seconds, comparison.measured_seconds});
  for (const ComparedTime& one : comparison.kinds) text += row(one);
  for (const ComparedTime& one : comparison.lanes) text += row(one);
  if (has_collectives(comparison)) {
    text += "Measured collectives include the wait for other ranks.\n";
  }
  return text;
}

std::string json(const Comparison& comparison) {
  return fmt::format(
      "{{\"predicted_seconds\":{:.9f},\"measured_seconds\":{:.9f},\"error\":{:.6f},\"kinds\":[{}],"
      "\"lanes\":[{}]}}",
      comparison.predicted_seconds, comparison.measured_seconds,
      relative_error(comparison.predicted_seconds, comparison.measured_seconds),
      json_list(comparison.kinds), json_list(comparison.lanes));
}

}  // namespace fpdt
