// The values of a sweep as its flag has them.
#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "fpdt/base/assert.h"

#include "plan/sweep.h"

namespace fpdt {
namespace {

std::int64_t parse_devices(const std::string& where, const std::string& text) {
  std::int64_t devices = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, devices);
  constexpr std::int64_t kMost = std::int64_t{1} << 20;
  if (error == std::errc{} && stop == end && devices >= 1 && devices <= kMost) return devices;
  throw InputError(fmt::format("{}: expected 1 to {} GPUs, found \"{}\"", where, kMost, text));
}

std::int64_t parse_value(Over over, const std::string& where, const std::string& text) {
  switch (over) {
    case Over::chunk:
    case Over::seq_len:
      return parse_length(where, text);
    case Over::gpus:
    case Over::weak_scaling:
      return parse_devices(where, text);
    case Over::host_budget:
      return parse_size(where, text).value;
  }
  FPDT_ASSERT(false);
  return 0;
}

}  // namespace

std::vector<SweepPoint> sweep_points(const Question& question, Over over, const std::string& values,
                                     const OnProgress& progress) {
  std::vector<SweepPoint> points;
  const auto add = [&](const std::string& where, std::int64_t value) {
    try {
      points.push_back(sweep_point(question.problem, question.pins, over, value));
    } catch (const InputError& error) {
      std::string what = error.what();
      while (!what.empty() && what.back() == '\n') what.pop_back();
      throw InputError(fmt::format("{}: {}", where, what));
    }
  };
  if (values.empty()) {
    for (const std::int64_t value : usual_values(question.problem, question.pins, over, progress)) {
      add(fmt::format("--over {} at {}", word(over), label(over, value)), value);
    }
  } else {
    std::size_t begin = 0;
    for (std::size_t entry = 1; begin <= values.size(); ++entry) {
      const std::size_t end = std::min(values.find(',', begin), values.size());
      const std::string text = values.substr(begin, end - begin);
      const std::string where = fmt::format("--values, entry {}", entry);
      add(fmt::format("{} ({})", where, text), parse_value(over, where, text));
      begin = end + 1;
    }
  }
  std::stable_sort(points.begin(), points.end(),
                   [](const SweepPoint& a, const SweepPoint& b) { return a.value < b.value; });
  const auto same = [](const SweepPoint& a, const SweepPoint& b) { return a.value == b.value; };
  points.erase(std::unique(points.begin(), points.end(), same), points.end());
  return points;
}

}  // namespace fpdt
