// Chooses marks for each unit.
#include "fpdt/report/curve_scale.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/report/axis.h"

namespace fpdt {
namespace {

constexpr double kNanoseconds = 1e9;
constexpr double kMost = 9e18;  // about the largest 64-bit integer

std::int64_t whole(double value) {
  return static_cast<std::int64_t>(std::clamp(std::round(value), 0.0, kMost));
}

std::vector<CurveMark> from_ticks(const std::vector<Tick>& ticks, double scale) {
  std::vector<CurveMark> marks;
  for (const Tick& tick : ticks) {
    marks.push_back({static_cast<double>(tick.at) / scale, tick.label});
  }
  return marks;
}

std::string plain_label(CurveUnit unit, double at) {
  return unit == CurveUnit::percent ? fmt::format("{:.10g} %", 100 * at)
                                    : fmt::format("{:.10g}", at);
}

// All candidates between 1e-9 and 1e15 for a logarithmic axis, ascending.
std::vector<CurveMark> candidates(CurveUnit unit, bool fine) {
  std::vector<CurveMark> all;
  if (unit == CurveUnit::seconds) {
    for (const auto& [name, second] :
         {std::pair{"ns", 1e-9}, std::pair{"µs", 1e-6}, std::pair{"ms", 1e-3}}) {
      for (const int n : {1, 10, 100}) all.push_back({n * second, fmt::format("{} {}", n, name)});
    }
    for (const auto& [name, second] :
         {std::pair{"s", 1.0}, std::pair{"min", 60.0}, std::pair{"h", 3600.0}}) {
      for (const int n : {1, 10}) all.push_back({n * second, fmt::format("{} {}", n, name)});
    }
    for (double hours = 100; hours < 1e9; hours *= 10) {
      all.push_back({hours * 3600, fmt::format("{:.0f} h", hours)});
    }
    return all;
  }
  if (unit == CurveUnit::bytes) {
    for (std::int64_t bytes = 1; bytes <= std::int64_t{1} << 60; bytes *= fine ? 2 : 16) {
      all.push_back({static_cast<double>(bytes), format_bytes(Bytes{bytes})});
    }
    return all;
  }
  for (double power = 1e-9; power < 1e15; power *= 10) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (fine || factor == 1) {
        all.push_back({factor * power, plain_label(unit, factor * power)});
      }
    }
  }
  return all;
}

}  // namespace

std::string format_value(CurveUnit unit, double value) {
  switch (unit) {
    case CurveUnit::percent:
      return fmt::format("{:.1f} %", 100 * value);
    case CurveUnit::bytes:
      return format_bytes(Bytes{whole(value)});
    case CurveUnit::seconds:
      return format_nanoseconds(whole(value * kNanoseconds));
    case CurveUnit::plain:
      return value >= 1000 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
  }
  FPDT_ASSERT(false);
  return "";
}

std::vector<CurveMark> linear_marks(CurveUnit unit, double most, int count) {
  FPDT_ASSERT(most > 0 && count > 0);
  if (unit == CurveUnit::bytes) return from_ticks(byte_ticks(Bytes{whole(most)}, count), 1);
  if (unit == CurveUnit::seconds) {
    return from_ticks(time_ticks(0, whole(most * kNanoseconds), 0, count), kNanoseconds);
  }
  const double least = most / count;
  const double power = std::pow(10, std::floor(std::log10(least)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= least) step = factor * power;
  }
  std::vector<CurveMark> marks;
  for (int i = 0; i * step <= most * (1 + 1e-9); ++i) {
    marks.push_back({i * step, plain_label(unit, i * step)});
  }
  return marks;
}

std::vector<CurveMark> logarithmic_marks(CurveUnit unit, double low, double high, int count) {
  FPDT_ASSERT(0 < low && low <= high && count > 0);
  constexpr double kFine = 1000;  // axes that span less than this ratio get more marks
  const std::vector<CurveMark> all = candidates(unit, high / low < kFine);
  std::size_t first = 0;
  while (first + 2 < all.size() && all[first + 1].at <= low) ++first;
  std::size_t last = first + 1;
  while (last + 1 < all.size() && all[last].at < high) ++last;
  std::vector<CurveMark> marks;
  const std::size_t every = 1 + (last - first) / static_cast<std::size_t>(count);
  for (std::size_t i = first; i <= last; ++i) {
    marks.push_back(all[i]);
    if ((i - first) % every != 0) marks.back().label.clear();
  }
  return marks;
}

double CurveScale::at(double value) const {
  if (!logarithmic) return start + (end - start) * (value - low) / (high - low);
  const double part = std::log(std::max(value, low) / low) / std::log(high / low);
  return start + (end - start) * part;
}

}  // namespace fpdt
