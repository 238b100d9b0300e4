// Chunk lengths and divisions of the batch under pins.
#include "fpdt/plan/search/pins.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fpdt/base/math.h"
#include "fpdt/plan/fit.h"

namespace fpdt {
namespace {

// Sides of a grid of ranks; the rest share heads.
struct Sides {
  std::int64_t ring = 1, tensor = 1;
};

// The grids that `among` ranks may form. Of Sharing::grid, each side has at least two ranks.
std::vector<Sides> sides_of(const Problem& problem, Sharing sharing, std::int64_t among) {
  const ModelSpec& model = problem.model;
  std::vector<Sides> all;
  switch (sharing) {
    case Sharing::heads:
      if (divides_heads(model, among)) all.push_back({});
      break;
    case Sharing::queries:
      all.push_back({among, 1});
      break;
    case Sharing::products:
      if (divides_layers(model, among)) all.push_back({1, among});
      break;
    case Sharing::grid:
      for (const std::int64_t ring : rings(problem, among)) {
        if (ring > 1 && ring < among) all.push_back({ring, 1});
      }
      break;
  }
  return all;
}

// Why the ranks cannot share the batch, and the nearest batch that they can.
std::string why_no_split(const Problem& problem, const Pins& pins) {
  if (pins.method != nullptr && pins.method->sharing == Sharing::grid) {
    return fmt::format("{}: {} ranks form no rings across ranks that share the {} heads",
                       pins.method->name, problem.ranks(), problem.model.heads);
  }
  if (pins.method != nullptr && pins.method->sharing == Sharing::products) {
    return fmt::format(
        "{}: a batch of {} on {} ranks, which share the products of {}; the nearest "
        "is {}",
        pins.method->name, pins.batch, problem.ranks(), problem.model.name,
        over_most_products(problem, 1).mesh.replicas);
  }
  const std::vector<std::int64_t> degrees = data_parallel_degrees(problem);
  if (degrees.empty()) return fmt::format("{} ranks cannot divide the heads", problem.ranks());
  if (pins.data_parallel &&
      std::find(degrees.begin(), degrees.end(), *pins.data_parallel) == degrees.end()) {
    return fmt::format("data-parallel {}: {} ranks and {} heads allow {}", *pins.data_parallel,
                       problem.ranks(), problem.model.heads, fmt::join(degrees, ", "));
  }
  const std::int64_t degree = pins.data_parallel.value_or(degrees.front());
  return fmt::format("a batch of {}: {} ranks train {} sequences or a multiple; the nearest is {}",
                     pins.batch, problem.ranks(), degree, round_up(pins.batch, degree));
}

// The strategy with the shortest chunks that the pins leave.
Strategy first_strategy(const Problem& problem, const Pins& pins, const Split& split) {
  const std::int64_t tokens = lengths_of(problem, pins, split).front();
  return entered(problem, pins, skeleton_of(problem, split, tokens));
}

}  // namespace

std::vector<Split> splits(const Problem& problem, const Pins& pins) {
  const std::int64_t ranks = problem.ranks();
  // `sides`: those that a number of ranks may form; none: they cannot share a sequence.
  const auto with = [&](auto sides) {
    std::vector<Split> all;
    for (std::int64_t degree = 1; degree <= ranks; ++degree) {
      if (ranks % degree != 0 || pins.batch % degree != 0) continue;
      if (pins.data_parallel.value_or(degree) != degree) continue;
      for (const Sides& one : sides(ranks / degree)) {
        all.push_back({degree, pins.batch / degree, one.ring, one.tensor});
      }
    }
    return all;
  };
  if (pins.method != nullptr) {
    return with([&](std::int64_t among) { return sides_of(problem, pins.method->sharing, among); });
  }
  const std::vector<Split> all =
      with([&](std::int64_t among) { return sides_of(problem, Sharing::heads, among); });
  if (!all.empty()) return all;
  return with([&](std::int64_t among) {
    return std::vector<Sides>{{rings(problem, among).front(), 1}};
  });
}

bool possible(const Problem& problem, const Pins& pins) {
  if (pins.strategy) return check(problem, *pins.strategy).empty();
  const std::vector<Split> all = splits(problem, pins);
  return !all.empty() && check(problem, first_strategy(problem, pins, all.front())).empty();
}

void require_possible(const Problem& problem, const Pins& pins) {
  if (problem.device_budget.value <= 0 || problem.host_budget.value <= 0) {
    throw InputError(
        fmt::format("device_budget and host_budget of the problem: expected more than 0, found {} "
                    "and {}; those of a whole cluster are its device_memory and host_memory",
                    format_bytes(problem.device_budget), format_bytes(problem.host_budget)));
  }
  Strategy strategy = pins.strategy.value_or(default_strategy(problem));
  const std::vector<Split> all = splits(problem, pins);
  if (!pins.strategy && !all.empty()) {
    strategy = first_strategy(problem, pins, all.front());
  }
  const std::vector<Diagnostic> findings = check(problem, strategy);
  if (!findings.empty()) throw InputError(format_diagnostics(findings));
  if (!pins.strategy && all.empty()) throw InputError(why_no_split(problem, pins));
}

ClusterSpec usable_part(const Problem& problem, const Pins& pins) {
  const std::int64_t node = problem.cluster.devices_per_node;
  for (std::int64_t devices = problem.ranks(); devices > 0; --devices) {
    if (devices > node && devices % node != 0) continue;
    Problem smaller = problem;
    if (devices < problem.ranks()) smaller.cluster = with_devices(problem.cluster, devices);
    if (!splits(smaller, pins).empty()) return smaller.cluster;
  }
  return problem.cluster;
}

bool allowed(const Problem& problem, const Pins& pins, const Strategy& strategy) {
  if (pins.chunk_tokens && strategy.tiles.chunk_tokens != *pins.chunk_tokens) return false;
  if (pins.data_parallel && strategy.mesh.replicas != *pins.data_parallel) return false;
  return pins.method == nullptr || pins.method->holds(problem, strategy);
}

Strategy entered(const Problem& problem, const Pins& pins, const Strategy& strategy) {
  Strategy made = pins.method == nullptr ? strategy : pins.method->entered(problem, strategy);
  made.gradients = pins.gradients;
  return made;
}

bool stays(const Problem& problem, const Pins& pins, const Strategy& from, const Strategy& to) {
  return pins.method == nullptr || pins.method->holds(problem, to) ||
         !pins.method->holds(problem, from);
}

std::vector<std::int64_t> lengths_of(const Problem& problem, const Pins& pins, const Split& split) {
  if (pins.chunk_tokens) return {*pins.chunk_tokens};
  const std::int64_t ranks = problem.ranks() / split.data_parallel;
  const std::int64_t whole = round_up(problem.seq_len, ranks * problem.cluster.row_multiple);
  const Strategy any = entered(problem, pins, skeleton_of(problem, split, whole));
  const std::vector<std::int64_t> all =
      chunk_lengths(problem, ranks, split.ring, geometry(problem, any).hops);
  std::vector<std::int64_t> lengths = all;
  if (pins.method != nullptr && lengths.back() != whole) lengths.push_back(whole);
  if (pins.method == nullptr && split.ring == 1 && split.tensor == 1) return lengths;
  std::erase_if(lengths, [&](std::int64_t tokens) {
    const Strategy strategy = entered(problem, pins, skeleton_of(problem, split, tokens));
    const bool held = pins.method == nullptr || pins.method->holds(problem, strategy);
    return !held || !check(problem, strategy).empty();
  });
  return lengths.empty() ? all : lengths;  // too short for several chunks
}

Strategy skeleton_of(const Problem& problem, const Split& split, std::int64_t chunk_tokens) {
  Strategy strategy = spilled(problem, split.data_parallel, chunk_tokens, split.ring, split.tensor);
  strategy.micro_batches = split.micro_batches;
  return strategy;
}

}  // namespace fpdt
