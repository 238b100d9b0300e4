// Times every strategy one or two levers away, and simulates the fastest of them in full.
#include "climber.h"

#include <algorithm>
#include <vector>

#include "fpdt/plan/fit.h"
#include "fpdt/plan/search/estimates.h"

namespace fpdt::test {

Climbed climbed(const Problem& problem, const Candidate& answer) {
  const Problem roomier = fits(problem, answer.strategy)
                              ? problem
                              : with_room(problem, placement_gain(problem, answer.strategy));
  Estimates estimates(problem);
  const auto now = static_cast<double>(estimates.nanoseconds(answer.strategy));
  struct Found {
    double nanoseconds;
    Strategy strategy;
    std::string words;
  };
  std::vector<Found> found;
  const auto consider = [&](const Strategy& strategy, const std::string& words) {
    if (!within(roomier, usage(problem, strategy))) return;
    const auto estimate = static_cast<double>(estimates.nanoseconds(strategy));
    if (estimate < now) found.push_back({estimate, strategy, words});
  };
  const std::vector<Lever> all = levers();
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (const Change& one : all[i].changes(roomier, answer.strategy)) {
      const std::string first = one.words.empty() ? all[i].name : one.words;
      consider(one.strategy, first);
      for (std::size_t j = i + 1; j < all.size(); ++j) {
        for (const Change& two : all[j].changes(roomier, one.strategy)) {
          consider(two.strategy, first + "; " + two.words);
        }
      }
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Found& a, const Found& b) { return a.nanoseconds < b.nanoseconds; });
  const Machine machine(problem.cluster, RateEnd::typical);
  const auto before = static_cast<double>(answer.nanoseconds);
  Climbed best;
  constexpr std::size_t kSimulated = 8;
  for (std::size_t i = 0; i < std::min(kSimulated, found.size()); ++i) {
    Usage placed = usage(problem, found[i].strategy);
    const Room gain_of = placement_gain(problem, found[i].strategy);
    placed.device = placed.device - gain_of.device;
    placed.host_node = placed.host_node - gain_of.host;
    if (!within(problem, placed)) continue;
    const double gain =
        1 - static_cast<double>(step_nanoseconds(problem, found[i].strategy, machine)) / before;
    if (gain > best.gain) best = {gain, found[i].words};
  }
  return best;
}

}  // namespace fpdt::test
