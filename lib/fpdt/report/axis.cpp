// Steps of 1, 2 and 5 times a power of ten of the unit; minutes and hours in clock steps.
#include "fpdt/report/axis.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "fpdt/base/assert.h"

namespace fpdt {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kMinute = 60 * kSecond;
constexpr std::int64_t kHour = 60 * kMinute;

struct Unit {
  std::string_view name;
  std::int64_t nanoseconds;
};
constexpr std::array<Unit, 4> kUnits{{{"s", kSecond}, {"ms", 1'000'000}, {"µs", 1000}, {"ns", 1}}};

// Prints three significant digits.
std::string digits(double value) {
  return fmt::format("{:.{}f}", value, value >= 99.95 ? 0 : (value >= 9.995 ? 1 : 2));
}

// The smallest of 1, 2, 5, 10, 20, ... that is at least `least`.
std::int64_t round_step(double least) {
  std::int64_t power = 1;
  while (true) {
    for (const std::int64_t factor : {1, 2, 5}) {
      if (static_cast<double>(factor * power) >= least) return factor * power;
    }
    power *= 10;
  }
}

// A round step in nanoseconds, at least `least`.
std::int64_t time_step(double least) {
  constexpr std::array<std::int64_t, 12> clock{
      15 * kSecond, 30 * kSecond, kMinute, 2 * kMinute, 5 * kMinute, 10 * kMinute,
      15 * kMinute, 30 * kMinute, kHour,   2 * kHour,   5 * kHour,   10 * kHour};
  if (least <= 10.0 * kSecond) return round_step(least);
  for (const std::int64_t step : clock) {
    if (static_cast<double>(step) >= least) return step;
  }
  return kHour * round_step(least / static_cast<double>(kHour));
}

// The label of `at`, a multiple of `step`: in the largest unit up to `most`, with the decimals that
// the step needs.
std::string time_label(std::int64_t at, std::int64_t step, std::int64_t most) {
  if (at == 0) return "0";
  if (most >= 2 * kMinute && step >= kSecond) {
    const std::int64_t seconds = at / kSecond;
    if (most >= 2 * kHour) {
      if (step % kHour == 0) return fmt::format("{} h", seconds / 3600);
      const std::string clock = fmt::format("{}:{:02}", seconds / 3600, seconds / 60 % 60);
      return step % kMinute == 0 ? clock + " h" : fmt::format("{}:{:02} h", clock, seconds % 60);
    }
    if (step % kMinute == 0) return fmt::format("{} min", seconds / 60);
    return fmt::format("{}:{:02} min", seconds / 60, seconds % 60);
  }
  for (const Unit& unit : kUnits) {
    if (most < unit.nanoseconds && unit.nanoseconds > 1) continue;
    const double value = static_cast<double>(at) / static_cast<double>(unit.nanoseconds);
    const double fine = static_cast<double>(unit.nanoseconds) / static_cast<double>(step);
    const int decimals = fine <= 1 ? 0 : static_cast<int>(std::ceil(std::log10(fine) - 1e-9));
    return fmt::format("{:.{}f} {}", value, decimals, unit.name);
  }
  return "";
}

}  // namespace

std::string format_nanoseconds(std::int64_t nanoseconds) {
  if (nanoseconds < 0) return fmt::format("-{}", format_nanoseconds(-nanoseconds));
  const std::int64_t seconds = (nanoseconds + kSecond / 2) / kSecond;
  if (seconds >= 3600) {
    const std::int64_t minutes = (seconds + 30) / 60;
    return fmt::format("{} h {:02} min", minutes / 60, minutes % 60);
  }
  if (seconds >= 120) return fmt::format("{} min {:02} s", seconds / 60, seconds % 60);
  for (const Unit& unit : kUnits) {
    // 999.6 of the smaller unit would print as 1000, so values from 999 on take the next unit.
    if (unit.nanoseconds > 1 && nanoseconds * 1000 < unit.nanoseconds * 999) continue;
    if (unit.nanoseconds == 1) break;
    return fmt::format(
        "{} {}", digits(static_cast<double>(nanoseconds) / static_cast<double>(unit.nanoseconds)),
        unit.name);
  }
  return fmt::format("{} ns", nanoseconds);
}

std::string format_seconds(double seconds) {
  return format_nanoseconds(std::llround(seconds * 1e9));
}

std::string format_percent(double part, double whole) {
  const double value = 100 * part / whole;
  return fmt::format("{:.{}f} %", value, value > 0 && value < 9.95 ? 1 : 0);
}

std::vector<Tick> time_ticks(std::int64_t from, std::int64_t to, std::int64_t zero,
                             std::int64_t count) {
  FPDT_ASSERT(count > 0 && to >= from);
  const std::int64_t step = time_step(static_cast<double>(to - from) / static_cast<double>(count));
  const std::int64_t first = from - zero;
  std::vector<Tick> ticks;
  for (std::int64_t at = (first + step - 1) / step * step; at <= to - zero; at += step) {
    if (at >= first) ticks.push_back({zero + at, time_label(at, step, to - zero)});
  }
  return ticks;
}

std::vector<Tick> byte_ticks(Bytes most, std::int64_t count) {
  constexpr std::array<std::string_view, 5> names{"B", "KiB", "MiB", "GiB", "TiB"};
  std::int64_t unit = 1;
  std::size_t name = 0;
  while (name + 1 < names.size() && most.value / unit >= 2048) {
    unit *= 1024;
    ++name;
  }
  const double least =
      static_cast<double>(most.value) / static_cast<double>(unit) / static_cast<double>(count);
  const std::int64_t step = round_step(least);
  std::vector<Tick> ticks;
  for (std::int64_t at = 0; at * unit <= most.value; at += step) {
    ticks.push_back({at * unit, at == 0 ? "0" : fmt::format("{} {}", at, names[name])});
  }
  return ticks;
}

}  // namespace fpdt
