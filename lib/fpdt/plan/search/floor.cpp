// Products and attention, as the machine computes them without waiting.
#include "fpdt/plan/search/floor.h"

#include <algorithm>

#include "fpdt/cost/demand.h"
#include "fpdt/plan/fit.h"

namespace fpdt {
namespace {

// (query, key) pairs of a head on the rank with most of them, which is the last of a ring.
double most_pairs(const Problem& problem, const Geometry& shape) {
  const auto tokens = static_cast<double>(problem.seq_len);
  if (shape.ring == 1) return tokens * (tokens + 1) / 2;
  double pairs = 0;
  for (std::int64_t chunk = 0; chunk < shape.chunks; ++chunk) {
    const std::int64_t rows = shape.query_rows(chunk);
    const std::int64_t run = shape.reversed(chunk) ? 0 : shape.ring - 1;
    const std::int64_t first = chunk * shape.chunk_rows + run * rows;
    pairs += static_cast<double>(visible_pairs(first, rows, 0, first + rows));
  }
  return pairs;
}

}  // namespace

std::int64_t compute_floor(const Problem& problem, const Strategy& strategy,
                           const Machine& machine) {
  const ModelSpec& model = problem.model;
  const Geometry shape = geometry(problem, strategy);
  const StoredLayers stored = stored_layers(problem, strategy);
  const std::int64_t every = strategy.checkpoint_every();
  const auto layers = static_cast<double>(model.layers);
  const auto repeated = static_cast<double>(model.layers - stored.everything - stored.attention);
  const double reruns = layers * static_cast<double>(every - 1) / static_cast<double>(every);
  // In a segment whose repeats store attention, only the last layer repeats attention.
  const double last = every > 1 && stored.attention > 0 ? layers - reruns : 0;
  const auto tokens = static_cast<double>(problem.seq_len);
  const double pairs = most_pairs(problem, shape) * static_cast<double>(shape.heads) *
                       static_cast<double>(model.head_dim);
  const auto seconds = [&](Work work, double flops, std::int64_t size) {
    Demand demand;
    demand.work = work;
    demand.flops = flops;
    demand.size = size;
    demand.head_dim = model.head_dim;
    return machine.seconds(demand);
  };
  const std::int64_t weights = model.hidden * (model.qkv_width() + model.q_width()) +
                               model.hidden * (model.up_width() + model.feed_forward);
  const double products =
      2 * static_cast<double>(weights) * tokens / static_cast<double>(shape.sequence_parallel);
  const double once =
      seconds(Work::attention_forward, kForwardFlops * pairs * (layers + repeated + reruns + last),
              shape.query_rows(0)) +
      seconds(Work::attention_backward, kBackwardFlops * pairs * layers, shape.query_rows(0)) +
      seconds(Work::matmul, products * (3 * layers + repeated + reruns), shape.local_rows(0));
  constexpr double kMost = 9e18;  // centuries; simulation refuses such a step
  return static_cast<std::int64_t>(
      std::min(once * 1e9 * static_cast<double>(strategy.micro_batches), kMost));
}

}  // namespace fpdt
