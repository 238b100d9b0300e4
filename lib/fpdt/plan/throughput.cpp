// Computes model flops and their share of the peak.
#include "fpdt/plan/throughput.h"

#include <algorithm>
#include <numeric>

namespace fpdt {
namespace {

// Keys that the last query of a sequence sees.
double seen_keys(const LayerKind& kind, double tokens) {
  return kind.window == 0 ? tokens : std::min(tokens, static_cast<double>(kind.window));
}

}  // namespace

ModelFlops model_flops(const Problem& problem, const Strategy& strategy) {
  const ModelSpec& model = problem.model;
  const auto tokens = static_cast<double>(problem.seq_len);
  const auto sequences =
      static_cast<double>(strategy.mesh.replicas) * static_cast<double>(strategy.micro_batches);
  const std::int64_t lookups = (model.tied_embeddings ? 0 : model.vocabulary * model.hidden) +
                               model.learned_positions * model.hidden;
  const auto products = static_cast<double>(active_parameter_count(model) - lookups);
  const auto width = static_cast<double>(model.q_width());
  const std::vector<std::int64_t> layers = layers_of_kinds(model);
  double causal = 0,
         full = 0;  // keys that a query sees, in all layers, with the discount or without
  for (std::size_t k = 0; k < layers.size(); ++k) {
    const auto count = static_cast<double>(layers[k]);
    const double keys = seen_keys(model.kinds[k], tokens);
    causal += count * (keys - keys * keys / (2 * tokens));
    full += count * keys;
  }
  return {sequences * tokens * (6 * products + 12 * width * causal),
          sequences * tokens * (6 * products + 12 * width * full)};
}

Throughput throughput(const Problem& problem, const Strategy& strategy,
                      const Simulation& simulation) {
  Throughput result;
  result.step_seconds = static_cast<double>(simulation.nanoseconds) * 1e-9;
  const auto ranks = static_cast<double>(problem.ranks());
  const auto sequences =
      static_cast<double>(strategy.mesh.replicas) * static_cast<double>(strategy.micro_batches);
  result.tokens_per_second_per_gpu =
      sequences * static_cast<double>(problem.seq_len) / result.step_seconds / ranks;
  const double peak = problem.cluster.rates.peak_flops * ranks * result.step_seconds;
  const ModelFlops flops = model_flops(problem, strategy);
  const double executed =
      std::accumulate(simulation.flops.begin(), simulation.flops.end(), 0.0) * ranks;
  if (peak > 0) {
    result.mfu_causal = flops.causal / peak;
    result.mfu_full = flops.full / peak;
    result.hfu = executed / peak;
  }
  return result;
}

Throughput slower(const Throughput& throughput, double more_seconds) {
  Throughput result = throughput;
  result.step_seconds += more_seconds;
  const double share = throughput.step_seconds / result.step_seconds;
  for (double* rate :
       {&result.tokens_per_second_per_gpu, &result.mfu_causal, &result.mfu_full, &result.hfu}) {
    *rate *= share;
  }
  return result;
}

}  // namespace fpdt
