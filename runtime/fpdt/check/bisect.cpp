// Simplifications of problem and strategy, and what follows from their checks.
#include "fpdt/check/bisect.h"

#include <algorithm>

#include <fmt/format.h>

#include "fpdt/base/error.h"

namespace fpdt {
namespace {

constexpr std::string_view kTogether = "all of these";

struct Rule {
  std::string_view change;
  std::function<void(Problem&, Strategy&)> apply;
};

// The rules that change the problem. Those of the strategy stand in the table of choices.
const Rule kRules[] = {
    {"one rank",
     [](Problem& problem, Strategy& strategy) {
       problem.cluster.nodes = problem.cluster.devices_per_node = 1;
       strategy.mesh = Mesh{};
     }},
    {"one document per sequence", [](Problem& problem, Strategy&) { problem.documents = false; }},
    {"one layer",
     [](Problem& problem, Strategy& strategy) {
       if (problem.model.layers == 1) return;
       problem.model = one_layer(problem.model);
       strategy.segments = {1};
       strategy.layer_classes.resize(1);
       strategy.layer_classes.front().layers = 0;
     }},
    {"own attention kernels",
     [](Problem& problem, Strategy&) { problem.cluster.attention = AttentionKernels::own; }},
};

// A loss or norm that is not finite is a wrong one.
Trial checked(std::string_view change, const VerifiedSchedule& schedule, const Problem& problem,
              const CheckOptions& options) {
  Trial trial{std::string(change), {}, "", true};
  try {
    trial.report = check_schedule(schedule, problem, options);
  } catch (const NumericError& error) {
    trial.failure = error.what();
  }
  return trial;
}

template <class Is>
std::string changes_of(const std::vector<Trial>& trials, const Is& is) {
  std::vector<std::string_view> changes;
  for (const Trial& trial : trials) {
    if (trial.change != kTogether && is(trial)) changes.push_back(trial.change);
  }
  return fmt::format("{}", fmt::join(changes, ", "));
}

}  // namespace

std::vector<Simplification> simplifications(const Problem& problem, const Strategy& strategy,
                                            Choices table) {
  std::vector<Simplification> found;
  Simplification together{std::string(kTogether), problem, strategy};
  std::vector<Rule> rules(std::begin(kRules), std::end(kRules));
  for (const Choice& choice : table) {
    if (choice.simplify) rules.push_back({choice.simplest, choice.simplify});
  }
  for (const Rule& rule : rules) {
    Simplification one{std::string(rule.change), problem, strategy};
    rule.apply(one.problem, one.strategy);
    if (one.problem == problem && one.strategy == strategy) continue;
    rule.apply(together.problem, together.strategy);
    found.push_back(std::move(one));
  }
  if (found.size() > 1) found.push_back(std::move(together));
  return found;
}

Bisection bisect(const VerifiedSchedule& schedule, const Problem& problem, const Strategy& strategy,
                 const CheckOptions& options, const Lowering& lowering,
                 const std::function<void(std::string_view)>& progress) {
  const auto lowered = [&](std::string_view change, const Problem& simpler, const Strategy& with) {
    progress(change);
    try {
      return checked(change, lowering(simpler, with), simpler, options);
    } catch (const InputError& error) {
      return Trial{std::string(change), {}, error.what(), false};
    } catch (const MemoryError& error) {
      return Trial{std::string(change), {}, error.what(), false};
    }
  };
  constexpr std::string_view kItself = "the schedule";
  progress(kItself);
  Bisection all{checked(kItself, schedule, problem, options),
                lowered("lowered again", problem, strategy),
                {}};
  for (const Simplification& one : simplifications(problem, strategy)) {
    all.variants.push_back(lowered(one.change, one.problem, one.strategy));
  }
  return all;
}

bool Bisection::agrees() const {
  return schedule.agrees() && !lowered_again.disagrees() &&
         std::none_of(variants.begin(), variants.end(),
                      [](const Trial& t) { return t.disagrees(); });
}

std::string Bisection::conclusion() const {
  if (agrees()) return "The schedule agrees with the reference, and no variant differs.";
  if (schedule.agrees()) {
    return fmt::format("The schedule agrees with the reference; these variants do not: {}.",
                       changes_of(variants, [](const Trial& trial) { return trial.disagrees(); }));
  }
  if (lowered_again.agrees()) {
    return "The error goes away when the strategy is lowered again: the file is not what its "
           "strategy lowers to.";
  }
  const std::string without =
      changes_of(variants, [](const Trial& trial) { return trial.agrees(); });
  if (!without.empty()) return fmt::format("The error goes away with: {}.", without);
  if (!variants.empty() && variants.back().agrees()) {
    return "No single change makes the error go away, but all of them together do.";
  }
  return "No change makes the error go away: look at the kernels rather than at the strategy.";
}

}  // namespace fpdt
