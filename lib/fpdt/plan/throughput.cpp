// Computes model flops and their share of the peak.
#include "fpdt/plan/throughput.h"

#include <numeric>

namespace fpdt {

ModelFlops model_flops(const Problem& problem, const Strategy& strategy) {
  const ModelSpec& model = problem.model;
  const auto tokens = static_cast<double>(problem.seq_len);
  const auto sequences =
      static_cast<double>(strategy.mesh.replicas) * static_cast<double>(strategy.micro_batches);
  const std::int64_t lookups = (model.tied_embeddings ? 0 : model.vocabulary * model.hidden) +
                               model.learned_positions * model.hidden;
  const auto products = static_cast<double>(parameter_count(model) - lookups);
  const double attention =
      static_cast<double>(model.layers) * static_cast<double>(model.q_width()) * tokens;
  return {sequences * tokens * (6 * products + 6 * attention),
          sequences * tokens * (6 * products + 12 * attention)};
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
