// Changes one thing of the question or of the strategy at a time until something fits.
#include "fpdt/plan/answers/nearest.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include <fmt/format.h>

#include "fpdt/base/math.h"
#include "fpdt/plan/plan.h"
#include "fpdt/plan/search/longest.h"

namespace fpdt {
namespace {

bool any(const Problem& problem, const Pins& pins) {
  if (pins.strategy && !check(problem, *pins.strategy).empty()) return false;
  return any_fit(problem, pins).has_value();
}

// Rounds up to an eighth of the largest unit that the size reaches.
Bytes in_short(Bytes least) {
  std::int64_t unit = 1;
  for (int units = 1; units < 5 && least.value / unit >= 1024; ++units) unit *= 1024;
  return Bytes{round_up(least.value, std::max<std::int64_t>(1, unit / 8))};
}

// The least size over `from` that fits, to about a percent, rounded up; empty when it would be over
// `most`.
template <class Fits>
std::optional<Bytes> least_size(Bytes from, Bytes most, Fits fits) {
  if (from >= most) return std::nullopt;
  std::int64_t low = from.value;
  std::int64_t high = 2 * low + 1;
  while (!fits(Bytes{high})) {
    low = high;
    if (high >= most.value) return std::nullopt;
    high = std::min(2 * high, most.value);
  }
  while (high - low > std::max<std::int64_t>(1, high / 128)) {
    const std::int64_t middle = low + (high - low) / 2;
    (fits(Bytes{middle}) ? high : low) = middle;
  }
  return in_short(Bytes{high});
}

// Twice, four times, ... as many, up to a node, then whole nodes: twice, four times, ... one, or
// twice, three times, ... several.
std::vector<std::int64_t> larger_counts(const ClusterSpec& machine, std::int64_t devices) {
  std::vector<std::int64_t> counts;
  const std::int64_t node = machine.devices_per_node;
  while (2 * devices <= node) counts.push_back(devices *= 2);
  if (devices < node) counts.push_back(devices = node);
  if (machine.nodes == 1 && !(machine.rates.network.typical > 0)) return counts;
  constexpr std::int64_t kMostTimes = 64;
  const std::int64_t base = div_ceil(devices, node);
  for (std::int64_t times = 2; times <= kMostTimes; ++times) {
    if (base == 1 && (times & (times - 1)) != 0) continue;
    counts.push_back(base * times * node);
  }
  return counts;
}

std::optional<Nearest> more_devices(const Problem& problem, const Pins& pins,
                                    const ClusterSpec& machine) {
  for (const std::int64_t devices : larger_counts(machine, problem.ranks())) {
    const Problem larger = with_devices(problem, machine, devices);
    if (splits(larger, pins).empty() || !any(larger, pins)) continue;
    const std::int64_t nodes = larger.cluster.nodes;
    return Nearest{Nearest::What::gpus, devices, nodes};
  }
  return std::nullopt;
}

constexpr Bytes kHostMost{std::int64_t{1} << 60};
constexpr Bytes kDeviceMost{std::int64_t{1} << 42};

// Host memory of a node with which something fits; empty when the device binds.
std::optional<Nearest> more_host(const Problem& problem, const Pins& pins) {
  Problem ample = problem;
  const auto fits = [&](Bytes of_node) {
    ample.host_budget = of_node;
    return any(ample, pins);
  };
  if (!fits(kHostMost)) return std::nullopt;
  const auto need = least_size(problem.host_budget, kHostMost, fits);
  if (!need) return std::nullopt;
  return Nearest{Nearest::What::host_memory, need->value, 0};
}

std::optional<Nearest> larger_device(const Problem& problem, const Pins& pins) {
  Problem ample = problem;
  const auto need = least_size(problem.device_budget, kDeviceMost, [&](Bytes of_device) {
    ample.device_budget = of_device;
    return any(ample, pins);
  });
  if (!need) return std::nullopt;
  return Nearest{Nearest::What::device_memory, need->value, 0};
}

// Strategies that need less of the device than the given one, mildest first.
std::vector<Change> smaller(const Problem& problem, const Strategy& strategy) {
  std::vector<Change> changes;
  Strategy spilled = strategy;
  for (LayerClass& one : spilled.layer_classes) one.keep.fill(0);
  if (!(spilled == strategy)) {
    changes.push_back({"every tensor class spilled (keep: {})", spilled});
  }
  const std::int64_t ranks = problem.ranks() / strategy.mesh.replicas;
  const std::int64_t unit = ranks * problem.cluster.row_multiple;
  Strategy halved = spilled;
  for (std::int64_t c = geometry(problem, strategy).chunk_rows / 2 / unit * unit; c >= unit;
       c = c / 2 / unit * unit) {
    halved.tiles.chunk_tokens = c;
    for (std::int64_t* tile : {&halved.tiles.ffn_rows, &halved.tiles.loss_rows}) {
      *tile = std::min(*tile, c / ranks);
    }
    changes.push_back({fmt::format("chunk_tokens: {} and everything spilled", c), halved});
  }
  std::vector<Change> before = changes;
  before.insert(before.begin(), {"", strategy});
  std::string homes;
  for (const StateClass one : {StateClass::states, StateClass::gradients, StateClass::parameters}) {
    if (strategy.offloads(one)) continue;
    homes += fmt::format("{}{}: host", homes.empty() ? "" : ", ", word(one));
    for (auto& [words, change] : before) {
      change.offload(one, true);
      changes.push_back(
          {fmt::format("{}{}keep: {{{}}}", words, words.empty() ? "" : " and ", homes), change});
    }
  }
  return changes;
}

}  // namespace

std::vector<Nearest> nearest_fits(const Problem& problem, const Pins& pins,
                                  const ClusterSpec& machine, const OnProgress& progress) {
  std::vector<Nearest> all;
  const std::int64_t longest = pins.strategy ? 0 : longest_sequence(problem, pins, progress);
  if (longest > 0 && longest < problem.seq_len) {
    all.push_back({Nearest::What::seq_len, longest, 0});
  }
  for (const auto& found : {more_devices(problem, pins, machine), more_host(problem, pins),
                            larger_device(problem, pins)}) {
    if (found) all.push_back(*found);
  }
  return all;
}

std::optional<Fewer> faster_on_fewer(const Problem& problem, const Pins& pins,
                                     const SearchResult& found) {
  if (!found.best || pins.strategy) return std::nullopt;
  const Strategy& best = found.best->strategy;
  std::int64_t least = found.best->nanoseconds;
  std::optional<Fewer> fewer;
  const std::int64_t node = problem.cluster.devices_per_node;
  for (std::int64_t devices = problem.ranks() / 2; devices > 0; devices /= 2) {
    if (devices > node && devices % node != 0) continue;
    const Problem smaller = with_devices(problem, problem.cluster, devices);
    const Machine machine(smaller.cluster, RateEnd::typical);
    const Bound bound = bound_of(smaller, best.storage, best.gradients, pins.batch, machine);
    if (bound.step_seconds >= static_cast<double>(least) * 1e-9) break;
    if (!possible(smaller, pins)) continue;
    const SearchResult other = search(smaller, pins, {.bound = least, .front = false});
    if (!other.best || other.best->nanoseconds >= least) continue;
    least = other.best->nanoseconds;
    fewer = {devices, smaller.cluster.nodes, static_cast<double>(least) * 1e-9};
  }
  return fewer;
}

std::optional<SmallerStrategy> nearest_strategy(const Problem& problem, const Strategy& strategy) {
  for (const Change& change : smaller(problem, strategy)) {
    if (!check(problem, change.strategy).empty()) continue;
    const Usage need = usage(problem, change.strategy, lower(problem, change.strategy).placement);
    if (within(problem, need)) return SmallerStrategy{change, need};
  }
  return std::nullopt;
}

}  // namespace fpdt
