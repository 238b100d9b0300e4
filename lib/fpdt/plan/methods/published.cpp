// Adds the waste of a published implementation to the plan of its strategy.
#include "fpdt/plan/methods/published.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "fpdt/base/math.h"
#include "fpdt/plan/fit.h"
#include "fpdt/plan/throughput.h"

namespace fpdt {
namespace {

// Bytes of pinned blocks beyond what a schedule asks for, where each is a power of two. These codes
// do not pin layer inputs.
Bytes rounding(const Schedule& schedule) {
  Bytes bytes;
  for (const Buffer& buffer : schedule.buffers) {
    if (buffer.space != MemorySpace::host_pinned || buffer.name == "layer_input_host") continue;
    const std::int64_t slot = buffer.slot_bytes().value;
    const auto power = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(slot)));
    bytes += Bytes{mul(buffer.slots, power - slot)};
  }
  return bytes;
}

}  // namespace

Wasted wasted(const Problem& problem, const Method& method, const Strategy& strategy,
              const Schedule& schedule) {
  const Waste& waste = method.waste;
  const ModelSpec& model = problem.model;
  const Geometry shape = geometry(problem, strategy);
  constexpr std::int64_t kElement = 2;  // bytes of a stored one
  const std::int64_t rows = shape.local_tokens();
  Wasted added;
  added.device = Bytes{mul(mul(waste.hidden_tensors, rows), model.hidden * kElement)};
  added.device +=
      Bytes{mul(mul(waste.rotary_bytes, problem.seq_len), model.rotary_dim(model.kinds.front()))};
  added.device += Bytes{mul(mul(waste.logit_bytes, rows), model.vocabulary)};
  // The layers that store everything have scores, and so has the layer whose forward is repeated.
  const std::int64_t stored = stored_layers(problem, strategy).everything;
  const Bytes scores{mul(mul(mul(waste.score_bytes, model.heads), rows), shape.padded_tokens)};
  added.device += std::min(model.layers, stored + 1) * scores;
  if (waste.keeps_what_can_be_made) {
    constexpr std::int64_t kMasks = 2;  // a byte each
    const std::int64_t remade = kElement * (model.feed_forward + model.hidden);
    added.device += Bytes{mul(mul(stored, rows), remade + kMasks * model.hidden)};
  }
  if (waste.pinned_powers_of_two) added.host_rank = rounding(schedule);
  // Forward and backward, and forward once more where a layer does not store everything.
  const std::int64_t passes = 3 * model.layers - stored;
  added.step_seconds = waste.host_seconds *
                       static_cast<double>(mul(mul(passes, strategy.micro_batches), shape.chunks));
  const std::int64_t layers = mul(model.layers, strategy.micro_batches);
  const double offloaded = 1 - strategy.layer_classes.front().kept(TensorClass::layer_input);
  const auto inputs =
      offloaded * static_cast<double>(mul(mul(layers, rows), model.hidden * kElement));
  const Rates& rates = problem.cluster.rates;
  added.step_seconds += 2 * static_cast<double>(layers) * static_cast<double>(scores.value) /
                        rates.device_bandwidth.typical;
  added.step_seconds +=
      waste.pageable_copies * inputs * (1 / rates.d2h.typical + 1 / rates.h2d.typical);
  return added;
}

void add_waste(const Problem& problem, const Wasted& added, Usage& usage,
               std::array<Throughput, 3>& throughput) {
  const ClusterSpec& cluster = problem.cluster;
  usage.arena += added.device;
  usage.device += added.device;
  usage.host_rank += added.host_rank;
  usage.host_node += cluster.devices_per_node * added.host_rank;
  usage.host_numa += div_ceil(cluster.devices_per_node, cluster.numa_nodes) * added.host_rank;
  for (Throughput& one : throughput) one = slower(one, added.step_seconds);
}

Problem with_published_kernels(Problem problem) {
  problem.cluster.rates.own_attention_forward = problem.cluster.rates.own_attention_backward = {};
  return problem;
}

PublishedPlan published_plan(const Problem& asked, const Method& method, const Strategy& strategy) {
  const Problem problem = with_published_kernels(asked);
  Plan plan = make_plan(problem, strategy);
  const Wasted added = wasted(problem, method, plan.strategy, plan.lowered.schedule.schedule());
  add_waste(problem, added, plan.usage, plan.throughput);
  return {std::move(plan), added};
}

}  // namespace fpdt
