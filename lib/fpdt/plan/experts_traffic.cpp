// Sums the collectives of experts' tensors.
#include "fpdt/plan/experts_traffic.h"

#include <cmath>
#include <string_view>
#include <utility>

#include "fpdt/base/assert.h"
#include "fpdt/plan/lowering/lower_ops.h"
#include "fpdt/schedule/traffic.h"
#include "fpdt/spec/choices.h"

namespace fpdt {
namespace {

// Whether a buffer has matrices of experts, of all or of a slice. Those of dense layers end with
// the name of their kind (States).
bool is_of_experts(std::string_view name) {
  for (const std::string_view part : {".up.weight", ".down.weight"}) {
    const std::size_t at = name.find(part);
    if (at == name.npos) continue;
    const std::string_view rest = name.substr(at + part.size());
    return rest.empty() || rest.find_first_not_of(".0123456789") == rest.npos;
  }
  return false;
}

Schedule with_loop(const Problem& problem, Strategy strategy, ExpertLoop loop) {
  strategy.tiles.expert_loop = loop;
  return lower_without_states(problem, canonical(problem, std::move(strategy)));
}

std::int64_t device_bytes(const Schedule& schedule) {
  std::int64_t sum = 0;
  for (const Buffer& one : schedule.buffers) {
    if (one.space == MemorySpace::device) sum = add(sum, one.bytes().value);
  }
  return sum;
}

}  // namespace

ExpertsTraffic experts_traffic(const Problem& problem, const Strategy& strategy,
                               const Schedule& schedule) {
  const ModelSpec& model = problem.model;
  FPDT_ASSERT(model.has_experts());
  const auto of_experts = [](const Buffer& buffer) { return is_of_experts(buffer.name); };
  ExpertsTraffic sum;
  const auto bytes_of = [&](const Schedule& of) {
    const Traffic sent = traffic(of, of.train, 0, problem.cluster.devices_per_node, of_experts);
    return sent.node + sent.network;
  };
  sum.gathered = bytes_of(schedule);
  const std::int64_t ranks = geometry(problem, strategy).sequence_parallel;
  const auto element = static_cast<std::int64_t>(strategy.storage == Storage::f32 ? 4 : 2);
  sum.tokens_of_rank = div_ceil(problem.seq_len, ranks);
  std::int64_t experts = 0;  // that a token takes in all layers
  for (const LayerRun& run : layer_runs(model)) experts += run.count * run.model.active_experts;
  const std::int64_t rows = mul(sum.tokens_of_rank, experts);
  sum.tokens =
      mul(mul(4 * strategy.micro_batches, rows), model.hidden * element) / ranks * (ranks - 1);
  const bool sliced = strategy.tiles.expert_slices > 1;
  if (sum.tokens > 0 && !sliced) {
    sum.crossing = static_cast<std::int64_t>(
        std::ceil(static_cast<double>(sum.gathered) * static_cast<double>(sum.tokens_of_rank) /
                  static_cast<double>(sum.tokens)));
  }
  if (!sliced) return sum;
  sum.loop = strategy.tiles.expert_loop;
  const Schedule tiles = with_loop(problem, strategy, ExpertLoop::tiles);
  const Schedule slices = with_loop(problem, strategy, ExpertLoop::slices);
  const std::int64_t open = device_bytes(slices) - device_bytes(tiles);
  if (open != 0) sum.loops = {bytes_of(tiles), bytes_of(slices), open};
  return sum;
}

}  // namespace fpdt
