// Contenders at one length and over lengths.
#include "fpdt/plan/answers/comparison.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "fpdt/plan/search/longest.h"

namespace fpdt {
namespace {

constexpr std::size_t kMostLengths = 8;

ComparedPoint point_at(const Problem& problem, const Contender& contender,
                       const OnProgress& progress) {
  ComparedPoint point{problem, {}};
  if (contender.published &&
      !check(problem, contender.method->published(problem, contender.pins.batch)).empty()) {
    return point;
  }
  point.outcome = contend(problem, contender, progress).outcome;
  return point;
}

}  // namespace

std::vector<Contender> contenders(const Problem& problem, const Pins& pins,
                                  std::span<const Method* const> compared) {
  std::vector<Contender> all;
  for (const Method* method : compared) {
    if (!serves(*method, problem.model)) continue;
    Pins its;
    its.method = method;
    its.batch = pins.batch;
    its.data_parallel = pins.data_parallel;
    its.gradients = pins.gradients;
    const ClusterSpec part = usable_part(problem, its);
    Problem on_part = problem;
    on_part.cluster = part;
    if (splits(on_part, its).empty()) continue;
    all.push_back({fmt::format("{} (published)", method->title), method, true, its, part});
    all.push_back({fmt::format("{} (best)", method->title), method, false, its, part});
  }
  all.push_back({"searched", nullptr, false, pins, problem.cluster});
  return all;
}

Contended contend(const Problem& problem, const Contender& contender, const OnProgress& progress) {
  if (contender.published) {
    const PublishedPlan published = published_plan(
        problem, *contender.method, contender.method->published(problem, contender.pins.batch));
    return {outcome(problem, published.plan), published.wasted};
  }
  const SearchResult found =
      search(problem, contender.pins, {.front = false, .progress = progress});
  return {outcome(problem, found.best ? found.best->strategy : found.shortage->closest), {}};
}

std::vector<std::int64_t> doubling_lengths(const Problem& problem, const Pins& pins) {
  constexpr std::int64_t kFirst = 131072;
  const auto possible = [&](std::int64_t tokens) { return possible_length(problem, pins, tokens); };
  const auto fits = [&](std::int64_t tokens) {
    return possible(tokens) && any_fit(with_length(problem, tokens), pins).has_value();
  };
  const std::int64_t shortest = shortest_sequence(problem, pins);
  std::int64_t longest = kFirst;
  while (longest < shortest) longest *= 2;
  while (longest / 2 >= shortest && !fits(longest)) longest /= 2;
  while (fits(2 * longest)) longest *= 2;
  std::vector<std::int64_t> lengths;
  std::int64_t first = std::max(std::int64_t{1}, std::min(kFirst, longest / 8));
  first = std::max(longest > 4 * kFirst ? kFirst : first, longest >> (kMostLengths - 2));
  while (first < shortest) first *= 2;
  for (std::int64_t length = first; length <= 2 * longest; length *= 2) {
    if (possible(length)) lengths.push_back(length);
  }
  if (lengths.empty()) lengths.push_back(shortest);
  return lengths;
}

std::vector<ComparedCurve> compared_curves(const Problem& problem, bool go_on,
                                           std::vector<std::int64_t>& lengths,
                                           std::vector<Contender> all,
                                           const ComparisonListener& listener) {
  std::vector<ComparedCurve> curves;
  for (Contender& contender : all) curves.push_back({std::move(contender), {}});
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (listener.begun)
      listener.begun(lengths[i], static_cast<std::int64_t>(i + 1), std::ssize(lengths));
    const Problem at_length = with_length(problem, lengths[i]);
    bool any = false;
    for (ComparedCurve& curve : curves) {
      if (!curve.points.empty() && !curve.points.back().fits()) continue;
      const Contender& contender = curve.contender;
      curve.points.push_back(
          point_at(contender.on_its_gpus(at_length), contender, listener.progress));
      any = any || curve.points.back().fits();
    }
    // The usual lengths come from bytes before placement: a search may go further.
    const bool last = i + 1 == lengths.size();
    if (any && last && go_on &&
        possible_length(problem, curves.back().contender.pins, 2 * lengths[i])) {
      lengths.push_back(2 * lengths[i]);
    }
  }
  return curves;
}

}  // namespace fpdt
