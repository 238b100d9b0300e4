// Which values, and the questions that they make.
#include "sweep.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/plan/search/longest.h"

namespace fpdt {
namespace {

constexpr std::array<std::string_view, 4> kWords{"chunk", "seq-len", "gpus", "host-budget"};

std::string label_of(Over over, std::int64_t value) {
  switch (over) {
    case Over::chunk:
    case Over::seq_len:
      return format_tokens(value);
    case Over::gpus:
      return fmt::format("{}", value);
    case Over::host_budget:
      return format_bytes(Bytes{value});
  }
  FPDT_ASSERT(false);
  return "";
}

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
      return parse_devices(where, text);
    case Over::host_budget:
      return parse_size(where, text).value;
  }
  FPDT_ASSERT(false);
  return 0;
}

// Powers of two from 64K on to the longest that fits, that one, and the next power. Where 64K is
// too long or too far below, they begin earlier or later.
std::vector<std::int64_t> usual_lengths(const Question& question, const OnProgress& progress) {
  constexpr std::int64_t kFirst = 65536;
  constexpr std::int64_t kMost = 11;  // powers of two
  constexpr double kApart = 1.1;      // the longest from the power below it
  const Problem& problem = question.problem;
  const std::int64_t longest = longest_sequence(problem, question.pins, progress);
  if (longest == 0) return {kFirst};
  std::int64_t last = 1;
  while (2 * last <= longest) last *= 2;
  std::int64_t first = std::max(std::min(kFirst, last / 8), last >> (kMost - 1));
  first = std::max({first, problem.ranks() * problem.cluster.row_multiple, std::int64_t{1}});
  std::vector<std::int64_t> lengths;
  for (std::int64_t length = first; length <= last; length *= 2) lengths.push_back(length);
  if (static_cast<double>(longest) > kApart * static_cast<double>(last)) lengths.push_back(longest);
  if (possible_length(question, 2 * last)) lengths.push_back(2 * last);
  return lengths;
}

// Whole nodes, those that the heads allow.
std::vector<std::int64_t> usual_devices(const Question& question) {
  std::vector<std::int64_t> all;
  for (const std::int64_t nodes : {1, 2, 4, 8}) {
    Problem problem = question.problem;
    problem.cluster.nodes = nodes;
    if (nodes > 1 && problem.cluster.rates.network.typical <= 0) break;
    if (!splits(problem, question.pins).empty()) all.push_back(problem.cluster.devices());
  }
  return all;
}

std::vector<std::int64_t> usual_budgets(const Question& question) {
  std::vector<std::int64_t> all;
  for (const std::int64_t quarters : {1, 2, 3, 4, 6, 8, 16}) {
    all.push_back(quarters * (question.problem.cluster.host_available().value / 4));
  }
  return all;
}

std::vector<std::int64_t> usual_values(const Question& question, Over over,
                                       const OnProgress& progress) {
  switch (over) {
    case Over::chunk: {
      if (question.pins.strategy) {
        const Geometry shape = geometry(question.problem, *question.pins.strategy);
        return chunk_lengths(question.problem, shape.sequence_parallel, shape.ring, shape.hops);
      }
      const std::vector<Split> all = splits(question.problem, question.pins);
      const Split split = all.empty() ? Split{} : all.front();
      const std::int64_t ranks = question.problem.ranks() / split.data_parallel;
      return chunk_lengths(question.problem, ranks, split.ring);
    }
    case Over::seq_len:
      return usual_lengths(question, progress);
    case Over::gpus:
      return usual_devices(question);
    case Over::host_budget:
      return usual_budgets(question);
  }
  FPDT_ASSERT(false);
  return {};
}

SweepPoint point_of(const Question& question, Over over, std::int64_t value) {
  SweepPoint point{value, label_of(over, value), question.problem, question.pins, {}, {}};
  switch (over) {
    case Over::chunk:
      point.pins.chunk_tokens = value;
      if (point.pins.strategy) {
        point.pins.strategy->tiles.chunk_tokens = value;
        point.pins.chunk_tokens.reset();
      }
      break;
    case Over::seq_len:
      point.problem.seq_len = value;
      break;
    case Over::gpus:
      point.problem.cluster = with_devices(point.problem.cluster, value);
      break;
    case Over::host_budget:
      point.problem.host_budget = Bytes{value};
      break;
  }
  require_possible(point.problem, point.pins);
  return point;
}

}  // namespace

std::string_view word(Over over) { return kWords[static_cast<std::size_t>(over)]; }

Over over_of(const std::string& word) {
  const auto found = std::find(kWords.begin(), kWords.end(), word);
  FPDT_ASSERT(found != kWords.end());
  return static_cast<Over>(found - kWords.begin());
}

std::vector<SweepPoint> sweep_points(const Question& question, Over over, const std::string& values,
                                     const OnProgress& progress) {
  std::vector<SweepPoint> points;
  const auto add = [&](const std::string& where, std::int64_t value) {
    try {
      points.push_back(point_of(question, over, value));
    } catch (const InputError& error) {
      std::string what = error.what();
      while (!what.empty() && what.back() == '\n') what.pop_back();
      throw InputError(fmt::format("{}: {}", where, what));
    }
  };
  if (values.empty()) {
    for (const std::int64_t value : usual_values(question, over, progress)) {
      add(fmt::format("--over {} at {}", word(over), label_of(over, value)), value);
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

void answer_points(const Question& question, Over over, bool usual, std::vector<SweepPoint>& points,
                   const SweepListener& listener) {
  const auto answer = [&](SweepPoint& point) {
    listener.begun(point);
    const SearchResult found = search(point.problem, point.pins, {.progress = listener.progress});
    if (found.best) {
      point.outcome = outcome(point.problem, found.best->strategy);
    } else {
      point.shortage = *found.shortage;
    }
    listener.answered(point);
  };
  std::for_each(points.begin(), points.end(), answer);
  if (!usual || over != Over::seq_len) return;
  // The longest is a bound before placement: a search may go further.
  while (points.back().outcome && possible_length(question, 2 * points.back().value)) {
    points.push_back(point_of(question, over, 2 * points.back().value));
    answer(points.back());
  }
}

}  // namespace fpdt
