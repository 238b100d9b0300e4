// Chooses the values of a sweep, makes a question of each and answers it.
#include "fpdt/plan/answers/sweep.h"

#include <algorithm>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/math.h"
#include "fpdt/plan/search/longest.h"

namespace fpdt {
namespace {

// Powers of two from 64K on to the longest that fits, that one, and the next power. Where 64K is
// too long or too far below, they begin earlier or later.
std::vector<std::int64_t> usual_lengths(const Problem& problem, const Pins& pins,
                                        const OnProgress& progress) {
  constexpr std::int64_t kFirst = 65536;
  constexpr std::int64_t kMost = 11;  // powers of two
  constexpr double kApart = 1.1;      // the longest from the power below it
  const std::int64_t longest = longest_sequence(problem, pins, progress);
  const auto possible = [&](std::int64_t tokens) { return possible_length(problem, pins, tokens); };
  if (longest == 0) return {possible(kFirst) ? kFirst : shortest_sequence(problem, pins)};
  std::int64_t last = 1;
  while (2 * last <= longest) last *= 2;
  std::int64_t first = std::max(std::min(kFirst, last / 8), last >> (kMost - 1));
  first = std::max({first, problem.ranks() * problem.cluster.row_multiple, std::int64_t{1}});
  std::vector<std::int64_t> lengths;
  for (std::int64_t length = first; length <= last; length *= 2) {
    if (possible(length)) lengths.push_back(length);
  }
  if (lengths.empty() || static_cast<double>(longest) > kApart * static_cast<double>(last)) {
    lengths.push_back(longest);
  }
  if (possible(2 * last)) lengths.push_back(2 * last);
  return lengths;
}

// The devices of whole nodes that the heads allow; if they allow none, whole nodes, of which parts
// can be used.
std::vector<std::int64_t> usual_devices(const Problem& problem, const Pins& pins) {
  std::vector<std::int64_t> all, in_part;
  for (const std::int64_t nodes : {1, 2, 4, 8}) {
    Problem larger = problem;
    larger.cluster.nodes = nodes;
    if (nodes > 1 && larger.cluster.rates.network.typical <= 0) break;
    (splits(larger, pins).empty() ? in_part : all).push_back(larger.cluster.devices());
  }
  return all.empty() ? in_part : all;
}

std::vector<std::int64_t> usual_budgets(const Problem& problem) {
  std::vector<std::int64_t> all;
  for (const std::int64_t quarters : {1, 2, 3, 4, 6, 8, 16}) {
    all.push_back(quarters * (problem.cluster.host_available().value / 4));
  }
  return all;
}

void answer(SweepPoint& point, const SweepListener& listener) {
  if (listener.begun) listener.begun(point);
  const SearchResult found =
      search(point.problem, point.pins, {.front = false, .progress = listener.progress});
  if (found.best) {
    point.outcome = outcome(point.problem, found.best->strategy);
  } else {
    point.shortage = *found.shortage;
  }
  if (listener.answered) listener.answered(point);
}

}  // namespace

std::string label(Over over, std::int64_t value) {
  switch (over) {
    case Over::chunk:
    case Over::seq_len:
      return format_tokens(value);
    case Over::gpus:
    case Over::weak_scaling:
      return fmt::format("{}", value);
    case Over::host_budget:
      return format_bytes(Bytes{value});
  }
  FPDT_ASSERT(false);
  return "";
}

std::string label(Over over, const SweepPoint& point) {
  const std::string value = label(over, point.value);
  if (over != Over::weak_scaling) return value;
  return fmt::format("{}, {}", value, format_tokens(point.problem.seq_len));
}

std::vector<std::int64_t> usual_values(const Problem& problem, const Pins& pins, Over over,
                                       const OnProgress& progress) {
  switch (over) {
    case Over::chunk: {
      if (pins.strategy) {
        const Geometry shape = geometry(problem, *pins.strategy);
        return chunk_lengths(problem, shape.sequence_parallel, shape.ring, shape.hops);
      }
      const std::vector<Split> all = splits(problem, pins);
      const Split split = all.empty() ? Split{} : all.front();
      const std::int64_t ranks = problem.ranks() / split.data_parallel;
      return chunk_lengths(problem, ranks, split.ring);
    }
    case Over::seq_len:
      return usual_lengths(problem, pins, progress);
    case Over::gpus:
    case Over::weak_scaling:
      return usual_devices(problem, pins);
    case Over::host_budget:
      return usual_budgets(problem);
  }
  FPDT_ASSERT(false);
  return {};
}

SweepPoint sweep_point(const Problem& problem, const Pins& pins, Over over, std::int64_t value) {
  SweepPoint point{value, problem, pins, {}, {}};
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
      point.problem = with_devices(problem, problem.cluster, value);
      break;
    case Over::weak_scaling: {
      const std::int64_t tokens = mul(problem.seq_len, value);
      if (tokens % problem.ranks() != 0) {
        throw InputError(fmt::format("{} tokens on {} devices are no whole number on {}",
                                     problem.seq_len, problem.ranks(), value));
      }
      point.problem = with_devices(problem, problem.cluster, value);
      point.problem.seq_len = tokens / problem.ranks();
      break;
    }
    case Over::host_budget:
      point.problem.host_budget = Bytes{value};
      break;
  }
  if (over_machines(over) && !pins.strategy) {
    point.problem.cluster = usable_part(point.problem, point.pins);
  }
  require_possible(point.problem, point.pins);
  return point;
}

void answer_points(std::vector<SweepPoint>& points, const SweepListener& listener) {
  for (SweepPoint& point : points) answer(point, listener);
}

void answer_lengths(std::vector<SweepPoint>& points, const SweepListener& listener) {
  answer_points(points, listener);
  // The longest is a bound before placement: a search may go further.
  while (points.back().outcome) {
    const SweepPoint& last = points.back();
    if (!possible_length(last.problem, last.pins, 2 * last.value)) return;
    points.push_back(sweep_point(last.problem, last.pins, Over::seq_len, 2 * last.value));
    answer(points.back(), listener);
  }
}

}  // namespace fpdt
