// The changes that each lever offers, and the sentence about a strategy.
#include "fpdt/plan/search/levers.h"

#include <algorithm>

#include <fmt/format.h>

#include "fpdt/base/units.h"
#include "fpdt/plan/fit.h"
#include "fpdt/plan/methods/method.h"
#include "fpdt/spec/attention_kernels.h"

namespace fpdt {
namespace {

// The choices that have a turn, in that order. With `others`, the rest follow.
std::vector<const Choice*> in_turn(Choices table, bool others) {
  std::vector<const Choice*> rows;
  for (const Choice& choice : table) {
    if (choice.turn > 0 || others) rows.push_back(&choice);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Choice* a, const Choice* b) {
    return a->turn != b->turn && a->turn != 0 && (b->turn == 0 || a->turn < b->turn);
  });
  return rows;
}

// The values of a choice that are sound, each once.
std::vector<Change> changes_of(const Choice& choice, const Problem& problem, const Strategy& from) {
  std::vector<Change> changes;
  // What the host cannot hold may find room on the device.
  const Fits fit = [&](const Strategy& strategy) {
    if (fits(problem, strategy)) return true;
    return may_fit(problem, with_stored_on_host(strategy)) &&
           (fits(problem, with_host_relieved(problem, strategy)) ||
            fits(problem, with_inputs_relieved(problem, strategy)));
  };
  for (const Strategy& value : other_values(problem, choice, from, fit)) {
    const Strategy strategy = canonical(problem, value);
    if (strategy == from || !check(problem, strategy).empty()) continue;
    // The rates are cuDNN's, so there is no time for tiles that it does not compute.
    if (fused_attention(problem, from) && !fused_attention(problem, strategy)) continue;
    const bool known = std::any_of(changes.begin(), changes.end(), [&](const Change& change) {
      return change.strategy == strategy;
    });
    if (!known) changes.push_back({change_words(problem, choice, from, strategy), strategy});
  }
  return changes;
}

// The sides of the grid; those of one rank only where every grid has them.
std::string mesh_words(const Geometry& shape) {
  std::string sizes = fmt::format("{}", shape.data_parallel);
  std::string names = "replicas";
  const auto side = [&](std::string_view name, std::int64_t size) {
    sizes += fmt::format(" x {}", size);
    names += fmt::format(" x {}", name);
  };
  if (shape.ring > 1) side("ring", shape.ring);
  side("heads", shape.head_ranks());
  if (shape.tensor_ranks > 1) side("tensor", shape.tensor_ranks);
  std::string text = fmt::format("mesh {} ({})", sizes, names);
  if (shape.ring == 1) return text;
  return fmt::format("keys {} over {}", shape.hops > 1 ? "around rings" : "gathered", text);
}

}  // namespace

std::vector<Lever> levers(Choices table) {
  std::vector<Lever> all;
  for (const Choice* choice : in_turn(table, false)) {
    all.push_back({choice->name(), [choice](const Problem& problem, const Strategy& strategy) {
                     return changes_of(*choice, problem, strategy);
                   }});
  }
  return all;
}

std::string in_words(const Problem& problem, const Strategy& strategy, Choices table) {
  const Geometry shape = geometry(problem, strategy);
  const std::string ranks = shape.sequence_parallel == 1
                                ? "on one rank"
                                : fmt::format("over {} ranks", shape.sequence_parallel);
  const Method* method = method_of(problem, strategy);
  const std::string who = method ? fmt::format("{} {}", method->title, ranks) : mesh_words(shape);
  std::string text =
      fmt::format("{}: {} of {}{} tokens", who,
                  shape.chunks == 1 ? "one chunk" : fmt::format("{} chunks", shape.chunks),
                  shape.ragged() ? "up to " : "", format_tokens(shape.chunk_rows));
  if (shape.data_parallel > 1) text += fmt::format(", {} replicas", shape.data_parallel);
  if (strategy.micro_batches > 1) text += fmt::format(", {} micro-batches", strategy.micro_batches);
  for (const Choice* choice : in_turn(table, true)) {
    const std::string words = choice->words ? choice->words(problem, strategy, shape) : "";
    if (!words.empty()) text += "; " + words;
  }
  return text;
}

}  // namespace fpdt
