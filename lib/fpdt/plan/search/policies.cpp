// Solves the formula of inputs and outputs for each number of segments.
#include "fpdt/plan/search/policies.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "fpdt/plan/fit.h"
#include "fpdt/plan/lowering/builder.h"
#include "fpdt/plan/search/floor.h"
#include "fpdt/spec/layer_places.h"

namespace fpdt {
namespace {

OutputWeights weights(const Problem& problem, std::int64_t threshold, std::int64_t most) {
  if (threshold > most) return {};
  return output_weights(problem, static_cast<double>(threshold) / static_cast<double>(most));
}

// The least threshold with which so many segments need at most this memory; none if there is none.
std::optional<std::int64_t> least_threshold_within(const Problem& problem, std::int64_t count,
                                                   double inputs, std::int64_t most) {
  const auto fit = [&](std::int64_t threshold) {
    return segments_fit(problem.model.layers, count, inputs, weights(problem, threshold, most));
  };
  if (!fit(most)) return fit(most + 1) ? std::optional(most + 1) : std::nullopt;
  std::int64_t none = -1, some = most;
  while (some - none > 1) {
    const std::int64_t middle = none + (some - none) / 2;
    (fit(middle) ? some : none) = middle;
  }
  return some;
}

// The inputs of a layer that the inputs and outputs of a shape have room for, by what is left
// beside those of this policy.
double inputs_held(const Problem& problem, const Strategy& shape, const Policy& policy) {
  const Strategy strategy = with_policy(problem, shape, policy);
  const Geometry rows = geometry(problem, strategy);
  const std::int64_t element = dtype_bytes(storage_type(shape));
  const std::int64_t input = problem.cluster.devices_per_node * element * problem.model.hidden *
                             (rows.padded_tokens / rows.sequence_parallel);
  const double left = static_cast<double>(left_for_inputs(problem, strategy).value);
  return segments_memory(segment_lengths(strategy, problem.model.layers),
                         weights(problem, policy.threshold, thresholds(problem, shape))) +
         left / static_cast<double>(input);
}

// The policy with the shortest floor among those that need at most so many inputs of a layer.
std::optional<Policy> fastest_policy(const Problem& problem, const Strategy& shape, double inputs,
                                     const Machine& machine) {
  const std::int64_t layers = problem.model.layers, most = thresholds(problem, shape);
  std::optional<Policy> fastest;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t count = layers; count > 0; --count) {
    const auto threshold = least_threshold_within(problem, count, inputs, most);
    if (!threshold) continue;
    const OutputWeights outputs = weights(problem, *threshold, most);
    const Policy policy{least_segments(layers, count, outputs).lengths, *threshold};
    const std::int64_t floor = compute_floor(problem, with_policy(problem, shape, policy), machine);
    if (floor < least) fastest = policy;
    least = std::min(least, floor);
    if (*threshold == 0) break;
  }
  return fastest;
}

// The fastest policy by the room beside this one.
std::optional<Policy> policy_after(const Problem& problem, const Strategy& shape,
                                   const Policy& policy, const Machine& machine) {
  return fastest_policy(problem, shape, inputs_held(problem, shape, policy), machine);
}

}  // namespace

Strategy with_policy(const Problem& problem, Strategy shape, const Policy& policy) {
  const std::int64_t layers = problem.model.layers;
  shape.segments = policy.segments;
  if (policy.threshold > thresholds(problem, shape)) return with_stored(problem, shape, {});
  return with_stored_from(problem, shape, {policy.threshold, layers});
}

std::optional<Policy> first_policy(const Problem& problem, const Strategy& shape,
                                   const Machine& machine) {
  return policy_after(problem, shape, {{1}, thresholds(problem, shape) + 1}, machine);
}

std::vector<Policy> fast_policies(const Problem& problem, const Strategy& shape,
                                  const Machine& machine, std::optional<Policy> first) {
  std::vector<Policy> all;
  std::optional<Policy> next = std::move(first);
  while (next && std::none_of(all.begin(), all.end(),
                              [&](const Policy& one) { return one.segments == next->segments; })) {
    Strategy strategy = shape;
    strategy.segments = next->segments;
    all.push_back({next->segments, least_threshold(problem, strategy, next->threshold)});
    next = policy_after(problem, shape, all.back(), machine);
  }
  return all;
}

}  // namespace fpdt
