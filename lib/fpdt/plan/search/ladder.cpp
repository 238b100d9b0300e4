// Greedily chooses which lever to pull next on a copy of `from`.
#include "fpdt/plan/search/ladder.h"

#include <algorithm>

#include <fmt/format.h>

namespace fpdt {
namespace {

// A choice in which the two differ.
struct Pull {
  std::string words;
  const Choice* choice;
};

std::vector<Pull> differences(const Problem& problem, const Strategy& from, const Strategy& to,
                              Choices table) {
  std::vector<Pull> pulls;
  for (const Choice& choice : table) {
    if (!choice.has_rung()) continue;
    Strategy changed = from;
    take(problem, table, choice, changed, to);
    if (changed != from) pulls.push_back({change_words(problem, choice, from, to), &choice});
  }
  return pulls;
}

}  // namespace

std::vector<Rung> ladder(const Problem& problem, const Strategy& from, const Strategy& to,
                         const OnProgress& progress, Choices table) {
  const Machine machine(problem.cluster, RateEnd::typical);
  std::vector<Pull> left = differences(problem, from, to, table);
  std::vector<Rung> rungs{{"", from}};
  // Kept raw: tidying would drop choices that have no effect yet.
  Strategy raw = from;
  const auto all = static_cast<std::int64_t>(left.size());
  while (!left.empty()) {
    const std::int64_t done = all - static_cast<std::int64_t>(left.size());
    if (progress) progress({SearchProgress::Stage::rungs, done, all, 0});
    std::size_t best = left.size();
    bool best_fits = false;
    double least = 0;
    for (std::size_t i = 0; i < left.size(); ++i) {
      Strategy pulled = raw;
      take(problem, table, *left[i].choice, pulled, to);
      pulled = canonical(problem, pulled);
      if (!check(problem, pulled).empty()) continue;
      const Usage need = usage(problem, pulled);
      const bool fit = within(problem, need);
      if (best_fits && !fit) continue;
      const double seconds = cost({pulled, need, step_nanoseconds(problem, pulled, machine)});
      if (best < left.size() && fit == best_fits && seconds >= least) continue;
      best = i;
      best_fits = fit;
      least = seconds;
    }
    // The remaining changes are sound only together: they are pulled at once.
    if (best == left.size()) break;
    take(problem, table, *left[best].choice, raw, to);
    rungs.push_back({left[best].words, canonical(problem, raw)});
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(best));
  }
  if (!left.empty()) {
    std::string words;
    for (const Pull& pull : left) {
      words += fmt::format("{}{}", words.empty() ? "" : "; ", pull.words);
    }
    rungs.push_back({words, to});
  }
  return rungs;
}

}  // namespace fpdt
