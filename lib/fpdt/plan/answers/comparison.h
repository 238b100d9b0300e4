// Methods beside each other: as their authors run them, at their best, and the answer.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fpdt/plan/answers/outcome.h"
#include "fpdt/plan/methods/published.h"
#include "fpdt/plan/search/search.h"

namespace fpdt {

// A method as its authors run it, the best strategy of its region, or the answer.
struct Contender {
  std::string name;
  const Method* method = nullptr;  // null: the answer
  bool published = false;
  Pins pins;            // of the search; of a published strategy, the batch
  ClusterSpec cluster;  // the GPUs that it can use

  [[nodiscard]] Problem on_its_gpus(Problem problem) const {
    problem.cluster = cluster;
    return problem;
  }
};
// Two contenders for each method whose sides some of the GPUs can form and, last, the answer.
std::vector<Contender> contenders(const Problem& problem, const Pins& pins,
                                  std::span<const Method* const> compared = methods());

struct Contended {
  Outcome outcome;               // where nothing fits, of what needs least
  std::optional<Wasted> wasted;  // of a published form
};
// `problem`: on its GPUs.
Contended contend(const Problem& problem, const Contender& contender,
                  const OnProgress& progress = {});

// One length of a curve.
struct ComparedPoint {
  Problem problem;
  std::optional<Outcome> outcome;  // empty: the published strategy is none at this length

  [[nodiscard]] bool fits() const { return outcome && outcome->fits; }
};

struct ComparedCurve {
  Contender contender;
  std::vector<ComparedPoint> points;  // for the first lengths; all but the last one fit
};

// Powers of two from 128K to the first that does not fit; where few of these fit, from an eighth of
// the longest that does.
std::vector<std::int64_t> doubling_lengths(const Problem& problem, const Pins& pins);

struct ComparisonListener {
  // The length that is answered from now on, and which of how many it is, from 1.
  std::function<void(std::int64_t tokens, std::int64_t part, std::int64_t parts)> begun;
  OnProgress progress;
};
// `go_on`: from the last length, doubles it until nothing fits.
std::vector<ComparedCurve> compared_curves(const Problem& problem, bool go_on,
                                           std::vector<std::int64_t>& lengths,
                                           std::vector<Contender> all,
                                           const ComparisonListener& listener);

}  // namespace fpdt
