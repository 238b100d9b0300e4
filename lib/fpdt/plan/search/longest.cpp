// Bisects by bytes, which is quick, then by search, which uses what placement saves.
#include "fpdt/plan/search/longest.h"

#include <algorithm>

#include "fpdt/base/math.h"

namespace fpdt {
namespace {

// The longest length from `low` on that `fit` accepts, to 1/64 of itself or better; `low` is known
// to fit.
template <class Fit>
std::int64_t longest_from(std::int64_t low, std::int64_t most, std::int64_t unit, Fit fit) {
  const auto step_of = [unit](std::int64_t tokens) {
    return std::max(unit, tokens / 64 / unit * unit);
  };
  std::int64_t step = step_of(low);
  std::int64_t high = low;
  while (low < most) {
    high = std::min(low + step, most);
    if (!fit(high)) break;
    low = high;
    step *= 2;
  }
  while (high - low > step_of(low)) {
    const std::int64_t middle = low + (high - low) / 2 / unit * unit;
    if (middle == low) break;
    (fit(middle) ? low : high) = middle;
  }
  return low;
}

// The roundest length from `least` to `most`: 6M tokens divide better than 6042K. 0 if there is no
// multiple of `unit`.
std::int64_t roundest(std::int64_t least, std::int64_t most, std::int64_t unit) {
  std::int64_t step = unit;
  while (2 * step <= most) step *= 2;
  while (step > unit && most / step * step < least) step /= 2;
  const std::int64_t length = most / step * step;
  return length < least ? 0 : length;
}

std::int64_t most_tokens(const ModelSpec& model) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  return model.learned_positions > 0 ? std::min(model.learned_positions, kMost) : kMost;
}

}  // namespace

std::int64_t longest_sequence(const Problem& problem, const Pins& pins, const OnProgress& progress,
                              bool few_layers) {
  const std::int64_t most = most_tokens(problem.model);
  const std::int64_t unit = problem.ranks() * problem.cluster.row_multiple;
  const auto with = [&](std::int64_t tokens) { return with_length(problem, tokens); };
  SearchProgress now{.stage = SearchProgress::Stage::lengths};
  const auto counted = [&](std::int64_t tokens, bool fits) {
    ++now.done;
    if (fits) now.longest = std::max(now.longest, tokens);
    if (progress) progress(now);
    return fits;
  };
  const auto by_bytes = [&](std::int64_t tokens) {
    return counted(tokens, any_fit(with(tokens), pins).has_value());
  };
  const auto by_search = [&](std::int64_t tokens) {
    const SearchEffort effort{.levers = {}, .any = true, .few_layers = few_layers};
    return counted(tokens, possible(with(tokens), pins) &&
                               search(with(tokens), pins, effort).best.has_value());
  };
  std::int64_t low = shortest_sequence(problem, pins);
  if (!by_search(low)) return 0;
  low = longest_from(low, most, unit, by_bytes);
  return longest_from(low, most, unit, by_search);
}

// More host memory costs less where sequences are short, so the share that is lost grows with them.
std::int64_t longest_within(const Problem& problem, const Pins& pins, double share,
                            const OnProgress& progress) {
  const std::int64_t unit = problem.ranks() * problem.cluster.row_multiple;
  SearchProgress now{.stage = SearchProgress::Stage::lengths};
  const auto holds = [&](std::int64_t tokens, const SearchEffort& effort) {
    const Problem here = with_length(problem, tokens);
    Problem roomy = here;
    roomy.host_budget = Bytes{std::int64_t{1} << 50};
    SearchResult found;
    if (possible(here, pins)) found = search(here, pins, effort);
    bool within = found.best.has_value();
    if (within) {
      const SearchResult free = search(roomy, pins, effort);
      within = !free.best || cost(*found.best) <= (1 + share) * cost(*free.best);
    }
    ++now.done;
    if (within) now.longest = std::max(now.longest, tokens);
    if (progress) progress(now);
    return within;
  };
  // First without levers, which gain about as much on both sides.
  SearchEffort whole;
  whole.front = false;
  SearchEffort quick = whole;
  quick.levers.clear();
  const std::int64_t longest = longest_sequence(problem, pins, progress, true);
  std::int64_t low = longest, high = longest;  // within the limit, and beyond it
  const auto narrow = [&](const SearchEffort& effort) {
    while (high - low > std::max(unit, low / 64)) {
      const std::int64_t quarter = (high - low) / 4;
      const std::int64_t middle = roundest(low + quarter + 1, high - quarter, unit);
      if (middle == 0) break;
      (holds(middle, effort) ? low : high) = middle;
    }
  };
  while (low > 0 && !holds(low, quick)) {
    high = low;
    low = low / 2 / unit * unit;
  }
  narrow(quick);
  if (low == 0) return 0;
  // Where levers gain more on one side, the limit is elsewhere. Steps grow until it is passed.
  std::int64_t step = std::max(unit, low / 64);
  if (holds(low, whole)) {
    for (;; step *= 2) {
      high = std::min(roundest(low + step / 2, low + step, unit), longest);
      if (high <= low) return low;
      if (!holds(high, whole)) break;
      low = high;
    }
  } else {
    do {
      high = low;
      low = low > step ? roundest(low - step, low - step / 2, unit) : 0;
      step *= 2;
    } while (low > 0 && !holds(low, whole));
  }
  narrow(whole);
  return low;
}

std::int64_t shortest_sequence(const Problem& problem, const Pins& pins) {
  const std::int64_t unit = problem.ranks() * problem.cluster.row_multiple;
  std::int64_t tokens = unit;
  if (pins.strategy) {
    std::int64_t before = 0;  // chunks, at least, before the last one
    for (const LayerClass& one : pins.strategy->layer_classes) {
      before = std::max(before, one.first_stored_chunk);
    }
    tokens += round_up(mul(before, pins.strategy->tiles.chunk_tokens), unit);
  }
  return std::min(tokens, most_tokens(problem.model));
}

bool possible_length(const Problem& problem, const Pins& pins, std::int64_t tokens) {
  return tokens <= most_tokens(problem.model) && possible(with_length(problem, tokens), pins);
}

}  // namespace fpdt
