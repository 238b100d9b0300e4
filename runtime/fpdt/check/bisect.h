// Which choice of a strategy breaks its schedule: the check once more for each choice, with that
// one at its simplest.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/check/check.h"
#include "fpdt/spec/choices.h"

namespace fpdt {

struct Simplification {
  std::string change;  // "one chunk"
  Problem problem;
  Strategy strategy;
};

// One for each choice that is not at its simplest yet; if there are several, also all of them
// together, last. Some may not be possible: `check` says.
std::vector<Simplification> simplifications(const Problem& problem, const Strategy& strategy,
                                            Choices table = choices());

// The check of one schedule.
struct Trial {
  std::string change;
  std::optional<CheckReport> report;
  std::string failure;  // why there is no report
  bool ran = true;      // false: it cannot be lowered, or this machine cannot run it

  [[nodiscard]] bool agrees() const { return report && report->agrees(); }
  [[nodiscard]] bool disagrees() const { return ran && !agrees(); }
};

struct Bisection {
  Trial schedule;               // as it is
  Trial lowered_again;          // from its strategy: another file, where a person changed that
  std::vector<Trial> variants;  // of each simplification

  [[nodiscard]] bool agrees() const;
  // Which change makes the error go away, in a sentence.
  [[nodiscard]] std::string conclusion() const;
};

// Makes the schedule of a strategy; InputError or MemoryError where it cannot.
using Lowering = std::function<VerifiedSchedule(const Problem&, const Strategy&)>;

// Checks all of them; `progress` hears which, before each.
Bisection bisect(const VerifiedSchedule& schedule, const Problem& problem, const Strategy& strategy,
                 const CheckOptions& options, const Lowering& lowering,
                 const std::function<void(std::string_view)>& progress);

}  // namespace fpdt
