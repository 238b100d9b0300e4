// Budgets, and neighbouring strategies tried by lowering them.
#include "plan_fit.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "fpdt/base/error.h"

namespace fpdt {
namespace {

// Placed bytes of a strategy, when it fits both budgets.
std::optional<Bytes> fits(const Problem& problem, const Strategy& strategy) {
  if (!check(problem, strategy).empty()) return std::nullopt;
  const Placement placement = lower(problem, strategy).placement;
  const Bytes device = device_bytes(problem, placement);
  if (device > problem.device_budget || node_bytes(problem, placement) > problem.host_budget) {
    return std::nullopt;
  }
  return device;
}

struct Change {
  std::string words;
  Strategy strategy;
};

// Neighbouring strategies that need less of the device, mildest first.
std::vector<Change> smaller(const Problem& problem, const Strategy& strategy) {
  std::vector<Change> changes;
  Strategy spilled = strategy;
  for (LayerClass& one : spilled.fpdt.layer_classes) one.keep.fill(0);
  if (!(spilled == strategy))
    changes.push_back({"spilling every tensor class (keep: {})", spilled});
  const std::int64_t ranks = problem.ranks() / strategy.data_parallel;
  const std::int64_t unit = ranks * problem.cluster.row_multiple;
  const auto tile = [](std::int64_t rows, std::int64_t most) {
    return rows > 0 ? std::min(rows, most) : 0;
  };
  Strategy halved = spilled;
  for (std::int64_t c = geometry(problem, strategy).chunk_rows / 2 / unit * unit; c >= unit;
       c = c / 2 / unit * unit) {
    halved.fpdt.chunk_tokens = c;
    halved.fpdt.ffn_tile_rows = tile(halved.fpdt.ffn_tile_rows, c / ranks);
    halved.fpdt.loss_tile_rows = tile(halved.fpdt.loss_tile_rows, c / ranks);
    changes.push_back({fmt::format("chunk_tokens: {}, everything spilled", c), halved});
  }
  if (strategy.optimizer_offload) return changes;
  std::vector<Change> offloaded = changes;
  offloaded.insert(offloaded.begin(), {"the same strategy", strategy});
  for (Change& change : offloaded) {
    change.strategy.optimizer_offload = true;
    change.words += ", with optimizer_offload: true";
    changes.push_back(std::move(change));
  }
  return changes;
}

std::string nearest_fit(const Problem& problem, const Strategy& strategy) {
  for (const Change& change : smaller(problem, strategy)) {
    if (const auto bytes = fits(problem, change.strategy)) {
      return fmt::format("; {}, would need {}", change.words, format_bytes(*bytes));
    }
  }
  return "; no smaller chunk of this strategy fits: use more devices or a larger budget";
}

// The heaviest categories of a space, by rings before any sharing.
std::string heaviest(const Schedule& schedule, MemorySpace space) {
  std::map<std::string, Bytes> sums;
  for (const Buffer& buffer : schedule.buffers) {
    if (buffer.space == space) sums[std::string(word(buffer.category))] += buffer.bytes();
  }
  std::vector<std::pair<std::string, Bytes>> order(sums.begin(), sums.end());
  std::sort(order.begin(), order.end(),
            [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (std::size_t i = 0; i < order.size() && i < 3; ++i) {
    text +=
        fmt::format("{}{} {}", i == 0 ? "" : ", ", order[i].first, format_bytes(order[i].second));
  }
  return text;
}

// Parameters, gradients and optimizer states of one rank on its device.
Bytes state_bytes(const Schedule& schedule) {
  Bytes bytes;
  for (const Buffer& buffer : schedule.buffers) {
    if (buffer.space == MemorySpace::device && buffer.role == Role::state) bytes += buffer.bytes();
  }
  return bytes;
}

}  // namespace

std::string outside_text(const ClusterSpec& cluster) {
  std::string text;
  const auto part = [&](std::string_view name, Bytes bytes) {
    if (bytes.value == 0) return;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, format_bytes(bytes));
  };
  part("context", cluster.outside.context);
  part("libraries", cluster.outside.libraries);
  part("workspace of kernels", cluster.outside.workspace);
  part("communicator", cluster.outside_bytes() - cluster.outside.context -
                           cluster.outside.libraries - cluster.outside.workspace);
  return text;
}

Bytes device_bytes(const Problem& problem, const Placement& placement) {
  return placement.of(MemorySpace::device).arena + problem.cluster.outside_bytes();
}

Bytes node_bytes(const Problem& problem, const Placement& placement) {
  return problem.cluster.devices_per_node *
         (placement.of(MemorySpace::host_pinned).arena + placement.of(MemorySpace::host).arena);
}

void require_fit(const Problem& problem, const Strategy& strategy, const Lowered& lowered) {
  const Schedule& schedule = lowered.schedule.schedule();
  const Bytes device = device_bytes(problem, lowered.placement);
  if (device > problem.device_budget) {
    const Bytes states = state_bytes(schedule);
    const std::string alone =
        states > problem.device_budget
            ? fmt::format(" Parameters, gradients and optimizer states alone need {}.",
                          format_bytes(states))
            : "";
    throw InfeasibleError(fmt::format(
        "device memory: the schedule needs {}, the budget is {} ({} short).{} Most of it: {}{}",
        format_bytes(device), format_bytes(problem.device_budget),
        format_bytes(device - problem.device_budget), alone,
        heaviest(schedule, MemorySpace::device), nearest_fit(problem, strategy)));
  }
  const Bytes host = node_bytes(problem, lowered.placement);
  if (host > problem.host_budget) {
    throw InfeasibleError(fmt::format(
        "host memory: the {} ranks of a node need {}, the budget is {} ({} short). Most of it a "
        "rank: {}; "
        "keep more on the device, set checkpoint_every, or use more nodes",
        problem.cluster.devices_per_node, format_bytes(host), format_bytes(problem.host_budget),
        format_bytes(host - problem.host_budget), heaviest(schedule, MemorySpace::host_pinned)));
  }
}

}  // namespace fpdt
