// One thing of the question changed at a time, until something fits.
#include "nearest.h"

#include <algorithm>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "fpdt/base/math.h"
#include "fpdt/base/units.h"

namespace fpdt {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

bool any(const Problem& problem, const Pins& pins) {
  if (pins.strategy && !check(problem, *pins.strategy).empty()) return false;
  return any_fit(problem, pins).has_value();
}

std::string gibibytes(Bytes bytes) { return fmt::format("{}GiB", div_ceil(bytes.value, kGiB)); }

// Twice, three times, ... the nodes, or twice the devices of a part of one.
std::optional<Nearest> more_devices(const Problem& problem, const Pins& pins) {
  constexpr std::int64_t kMostTimes = 64;
  for (std::int64_t times = 2; times <= kMostTimes; ++times) {
    Problem larger = problem;
    if (problem.cluster.nodes == 1 && (times & (times - 1)) != 0) continue;
    larger.cluster.nodes = problem.cluster.nodes * times;
    if (data_parallel_degrees(larger).empty() || !any(larger, pins)) continue;
    const std::int64_t devices = larger.cluster.devices();
    return Nearest{fmt::format("{} GPUs ({} nodes)", devices, larger.cluster.nodes),
                   fmt::format("--gpus {}", devices)};
  }
  return std::nullopt;
}

// The least host memory of a node with which something fits; empty when the device binds.
std::optional<Nearest> more_host(const Problem& problem, const Pins& pins) {
  Problem ample = problem;
  ample.host_budget = Bytes{std::numeric_limits<std::int64_t>::max() / 4};
  if (!any(ample, pins)) return std::nullopt;
  std::int64_t low = problem.host_budget.value / kGiB;
  std::int64_t high = low + 1;
  const auto fits = [&](std::int64_t gibibytes_of_node) {
    ample.host_budget = Bytes{gibibytes_of_node * kGiB};
    return any(ample, pins);
  };
  while (!fits(high)) {
    low = high;
    high *= 2;
  }
  while (high - low > std::max<std::int64_t>(1, high / 128)) {
    const std::int64_t middle = low + (high - low) / 2;
    (fits(middle) ? high : low) = middle;
  }
  const Bytes need{high * kGiB};
  return Nearest{fmt::format("{} of host memory a node", format_bytes(need)),
                 fmt::format("--host-budget {}", gibibytes(need))};
}

std::optional<Nearest> larger_device(const Problem& problem, const Pins& pins) {
  Problem ample = problem;
  const auto fits = [&](std::int64_t gibibytes_of_device) {
    ample.device_budget = Bytes{gibibytes_of_device * kGiB};
    return any(ample, pins);
  };
  std::int64_t low = problem.device_budget.value / kGiB;
  std::int64_t high = 2 * low + 1;
  constexpr std::int64_t kMost = 4096;
  while (!fits(high)) {
    low = high;
    high *= 2;
    if (high > kMost) return std::nullopt;
  }
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (fits(middle) ? high : low) = middle;
  }
  const Bytes need{high * kGiB};
  const bool there = need <= problem.cluster.device_memory;
  return Nearest{fmt::format("{} of memory a device", format_bytes(need)),
                 there ? fmt::format("--device-budget {}", gibibytes(need)) : ""};
}

}  // namespace

std::vector<Nearest> nearest_fits(const Problem& problem, const Pins& pins) {
  std::vector<Nearest> all;
  const std::int64_t longest = pins.strategy ? 0 : longest_sequence(problem, pins);
  if (longest > 0 && longest < problem.seq_len) {
    all.push_back({fmt::format("{} tokens on the same machine", format_tokens(longest)),
                   fmt::format("--seq-len {}", format_tokens(longest))});
  }
  for (const auto& find : {more_devices, more_host, larger_device}) {
    if (const auto found = find(problem, pins)) all.push_back(*found);
  }
  return all;
}

}  // namespace fpdt
