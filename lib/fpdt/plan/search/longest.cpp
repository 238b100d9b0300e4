// Bisects by bytes, which is quick, then by search, which uses what placement saves.
#include "fpdt/plan/search/longest.h"

#include <algorithm>

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

std::int64_t most_tokens(const ModelSpec& model) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  return model.learned_positions > 0 ? std::min(model.learned_positions, kMost) : kMost;
}

}  // namespace

std::int64_t longest_sequence(const Problem& problem, const Pins& pins,
                              const OnProgress& progress) {
  const std::int64_t most = most_tokens(problem.model);
  const std::int64_t unit = problem.ranks() * problem.cluster.row_multiple;
  const auto with = [&](std::int64_t tokens) {
    Problem other = problem;
    other.seq_len = tokens;
    return other;
  };
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
    const SearchEffort effort{.levers = {}, .any = true};
    return counted(tokens, search(with(tokens), pins, effort).best.has_value());
  };
  std::int64_t low = std::min(unit, most);
  if (!by_search(low)) return 0;
  low = longest_from(low, most, unit, by_bytes);
  return longest_from(low, most, unit, by_search);
}

bool possible_length(const ModelSpec& model, std::int64_t tokens) {
  return tokens <= most_tokens(model);
}

}  // namespace fpdt
