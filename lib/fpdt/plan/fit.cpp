// Budgets, and the parts of a strategy that are solved in closed form.
#include "fpdt/plan/fit.h"

#include <algorithm>

#include "fpdt/base/math.h"
#include "fpdt/plan/lowering/groups.h"
#include "fpdt/spec/checkpoint_bytes.h"

namespace fpdt {
namespace {

bool host_fits(const Problem& problem, const Usage& need) {
  return need.host_node <= problem.host_budget;
}
bool device_fits(const Problem& problem, const Usage& need) {
  return need.device <= problem.device_budget;
}

// The largest n in 0 .. most that `good` accepts, if it accepts all smaller ones; -1: none.
template <class Good>
std::int64_t largest(std::int64_t most, Good good) {
  if (good(most)) return most;
  if (!good(0)) return -1;
  std::int64_t low = 0;
  for (std::int64_t high = most; high - low > 1;) {
    const std::int64_t middle = low + (high - low) / 2;
    (good(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace

Bytes outside_bytes(const Problem& problem, const Strategy& strategy) {
  const Connections connections = connections_of(problem, strategy);
  return problem.cluster.outside_bytes(connections.peers, connections.across);
}

Usage usage(const Problem& problem, const Strategy& strategy, const Prediction& prediction) {
  Usage need;
  need.arena = prediction.device;
  need.outside = outside_bytes(problem, strategy);
  need.device = need.arena + need.outside;
  need.host_rank = prediction.host_pinned + prediction.host;
  const ClusterSpec& cluster = problem.cluster;
  const Bytes load = loading_bytes(problem.model), save = saving_bytes(problem.model);
  const Bytes reordering = reordering_bytes(problem.model);
  need.loading = {load, cluster.devices_per_node * load};
  need.saving = {save + reordering, cluster.devices_per_node * save + reordering};
  need.host_node =
      cluster.devices_per_node * need.host_rank + std::max(need.loading.node, need.saving.node);
  need.host_numa = div_ceil(cluster.devices_per_node, cluster.numa_nodes) * need.host_rank;
  return need;
}

Usage usage(const Problem& problem, const Strategy& strategy) {
  return usage(problem, strategy, predict(problem, strategy));
}

Usage usage(const Problem& problem, const Strategy& strategy, const Placement& placement) {
  const auto arena = [&](MemorySpace space) { return placement.of(space).arena; };
  const Prediction placed{
      arena(MemorySpace::device), arena(MemorySpace::host_pinned), arena(MemorySpace::host), {}};
  return usage(problem, strategy, placed);
}

bool within(const Problem& problem, const Usage& need) {
  return device_fits(problem, need) && host_fits(problem, need);
}

Bytes numa_budget(const Problem& problem) {
  return Bytes{problem.host_budget.value / problem.cluster.numa_nodes};
}

bool fits_numa_nodes(const Problem& problem, const Usage& need) {
  return need.host_numa <= numa_budget(problem);
}

bool fits(const Problem& problem, const Strategy& strategy) {
  return check(problem, strategy).empty() && within(problem, usage(problem, strategy));
}

Strategy with_host_relieved(const Problem& problem, Strategy strategy,
                            std::initializer_list<TensorClass> tensors) {
  const std::int64_t chunks = geometry(problem, strategy).chunks;
  for (const TensorClass tensor : tensors) {
    const Usage before = usage(problem, strategy);
    if (host_fits(problem, before)) return strategy;
    const std::int64_t room = largest(chunks, [&](std::int64_t kept) {
      return device_fits(problem,
                         usage(problem, with_kept(strategy, tensor, fraction_of(kept, chunks))));
    });
    if (room <= 0) continue;
    const std::int64_t spare = largest(room, [&](std::int64_t less) {
      return host_fits(
          problem, usage(problem, with_kept(strategy, tensor, fraction_of(room - less, chunks))));
    });
    strategy =
        with_kept(strategy, tensor, fraction_of(room - std::max<std::int64_t>(spare, 0), chunks));
  }
  return strategy;
}

Strategy with_most_stored(const Problem& problem, const Strategy& strategy) {
  const std::int64_t layers = problem.model.layers;
  const auto solved = [&](const StoredLayers& stored) {
    return with_host_relieved(problem, with_stored(problem, strategy, stored));
  };
  const auto fit = [&](const StoredLayers& stored) {
    return within(problem, usage(problem, solved(stored)));
  };
  StoredLayers stored;
  if (strategy.checkpoint_every() > 1) {
    const StoredLayers repeats{0, layers};
    return solved(fit(repeats) ? repeats : stored);
  }
  stored.attention = std::max<std::int64_t>(0, largest(layers, [&](std::int64_t n) {
                                              return fit({0, n});
                                            }));
  return solved(stored);
}

Strategy over_most_ranks(const Problem& problem, std::int64_t batch) {
  Strategy strategy;
  const std::vector<std::int64_t> degrees = data_parallel_degrees(problem);
  if (!degrees.empty()) strategy.mesh.replicas = degrees.front();
  strategy.micro_batches = std::max<std::int64_t>(1, batch / strategy.mesh.replicas);
  return strategy;
}

Strategy over_most_products(const Problem& problem, std::int64_t batch) {
  Strategy strategy;
  const std::int64_t ranks = problem.ranks();
  while (ranks % strategy.mesh.replicas != 0 ||
         !divides_layers(problem.model, ranks / strategy.mesh.replicas)) {
    ++strategy.mesh.replicas;
  }
  strategy.mesh.tensor = ranks / strategy.mesh.replicas;
  strategy.micro_batches = std::max<std::int64_t>(1, batch / strategy.mesh.replicas);
  return strategy;
}

Strategy over_all_ranks(const Problem& problem, std::int64_t batch) {
  Strategy strategy = with_ring(Strategy{}, problem.ranks());
  strategy.micro_batches = batch;
  return strategy;
}

Strategy checkpointed(const Problem& problem, Strategy strategy) {
  const std::int64_t unit = problem.ranks() / strategy.mesh.replicas * problem.cluster.row_multiple;
  strategy.tiles.chunk_tokens = round_up(problem.seq_len, unit);
  strategy.copies.overlap_all_to_all = false;
  LayerClass& layers = strategy.layer_classes.front();
  layers.keep.fill(1);
  layers.keep[static_cast<std::size_t>(TensorClass::layer_input)] = 0;
  return canonical(problem, strategy);
}

Strategy spilled(const Problem& problem, std::int64_t data_parallel, std::int64_t chunk_tokens,
                 std::int64_t ring, std::int64_t tensor) {
  Strategy strategy = with_ring(default_strategy(problem), ring);
  strategy.mesh.tensor = tensor;
  strategy.layout = Layout::zigzag;  // in a ring, ranks then have the same work
  strategy.mesh.replicas = data_parallel;
  strategy.tiles.chunk_tokens = chunk_tokens;
  strategy.tiles.serpentine = true;
  // Twice and four times those of default_strategy: a search has the room, and a person who lowers
  // a strategy by hand may not.
  const Geometry shape = geometry(problem, strategy);
  const std::int64_t rows = shape.local_rows(0);
  strategy.tiles.ffn_rows = std::min(
      shape.product_rows(0), std::max<std::int64_t>(8192, least_ffn_rows(problem, strategy)));
  strategy.tiles.loss_rows =
      std::min(rows, std::max<std::int64_t>(4096, least_loss_rows(problem, strategy)));
  return canonical(problem, strategy);
}

}  // namespace fpdt
