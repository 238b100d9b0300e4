// Pulls each lever of a strategy once.
#include <optional>

#include "fpdt/plan/search/search.h"

namespace fpdt {

std::vector<Worth> worth(const Problem& question, const Strategy& strategy,
                         const OnProgress& progress) {
  // An answer that fits only after placement gets the budget plus its savings.
  const Problem problem =
      fits(question, strategy) ? question : with_room(question, placement_gain(question, strategy));
  const Machine machine(problem.cluster, RateEnd::typical);
  std::vector<Worth> all;
  const std::vector<Lever> pulled = levers();
  for (std::size_t i = 0; i < pulled.size(); ++i) {
    report(progress, SearchProgress::Stage::worth, i, pulled.size());
    const Lever& lever = pulled[i];
    std::optional<Worth> best;
    for (const Change& change : lever.changes(problem, strategy)) {
      Worth one{lever.name, change, usage(problem, change.strategy), false, 0};
      one.fits = within(problem, one.usage);
      if (best && best->fits && !one.fits) continue;
      one.nanoseconds = step_nanoseconds(problem, change.strategy, machine);
      const auto cost_of = [](const Worth& w) {
        return cost({w.change.strategy, w.usage, w.nanoseconds});
      };
      if (!best || (one.fits && !best->fits) || cost_of(one) < cost_of(*best)) best = one;
    }
    if (best) all.push_back(*best);
  }
  return all;
}

}  // namespace fpdt
