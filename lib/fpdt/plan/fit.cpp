// Budgets, and the parts of a strategy that are solved in closed form.
#include "fpdt/plan/fit.h"

#include <algorithm>
#include <cmath>

#include "fpdt/base/math.h"
#include "fpdt/spec/attention_kernels.h"
#include "fpdt/spec/checkpoint_bytes.h"
#include "fpdt/spec/unused.h"

namespace fpdt {
namespace {

constexpr std::int64_t kChunkTokensMost = std::int64_t{1} << 19;

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

Usage usage(const Problem& problem, const Prediction& prediction) {
  Usage need;
  need.arena = prediction.device;
  need.device = prediction.device + problem.cluster.outside_bytes();
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
  return usage(problem, predict(problem, strategy));
}

Usage usage(const Problem& problem, const Placement& placement) {
  const auto arena = [&](MemorySpace space) { return placement.of(space).arena; };
  const Prediction placed{
      arena(MemorySpace::device), arena(MemorySpace::host_pinned), arena(MemorySpace::host), {}};
  return usage(problem, placed);
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

double fraction_of(std::int64_t kept, std::int64_t chunks) {
  if (kept <= 0) return 0;
  if (kept >= chunks) return 1;
  constexpr double kDigits = 1e4;  // fine enough for kChunksMost chunks, short in a file
  const auto count = static_cast<double>(chunks);
  double digits = std::ceil(kDigits * static_cast<double>(kept) / count);
  if (static_cast<std::int64_t>(digits / kDigits * count) < kept) ++digits;  // rounded down
  return digits / kDigits;
}

StoredLayers stored_layers(const Problem& problem, const Strategy& strategy) {
  StoredLayers stored;
  std::int64_t rest = problem.model.layers;
  for (const LayerClass& one : strategy.layer_classes) {
    const std::int64_t layers = one.layers > 0 ? one.layers : rest;
    rest -= layers;
    if (one.recompute == Recompute::keep_all) stored.everything += layers;
    if (one.recompute == Recompute::keep_attention) stored.attention += layers;
  }
  return stored;
}

Strategy with_stored(const Problem& problem, Strategy strategy, const StoredLayers& stored) {
  const LayerClass like = strategy.layer_classes.front();
  std::vector<LayerClass>& classes = strategy.layer_classes;
  classes.clear();
  const auto add = [&](std::int64_t layers, Recompute recompute) {
    if (layers <= 0) return;
    classes.push_back(like);
    classes.back().layers = layers;
    classes.back().recompute = recompute;
  };
  add(stored.everything, Recompute::keep_all);
  add(stored.attention, Recompute::keep_attention);
  add(problem.model.layers - stored.everything - stored.attention, Recompute::from_input);
  classes.back().layers = 0;
  return strategy;
}

Strategy with_kept(Strategy strategy, TensorClass tensor, double fraction) {
  for (LayerClass& one : strategy.layer_classes) {
    one.keep[static_cast<std::size_t>(tensor)] = fraction;
  }
  return strategy;
}

Strategy tidied(const Problem& problem, Strategy strategy) {
  const Geometry shape = geometry(problem, strategy);
  for (LayerClass& one : strategy.layer_classes) {
    for (std::size_t k = 0; k < kTensorClasses; ++k) {
      const std::int64_t parts = shape.parts(static_cast<TensorClass>(k));
      one.keep[k] =
          fraction_of(static_cast<std::int64_t>(one.keep[k] * static_cast<double>(parts)), parts);
    }
  }
  return without_unused(problem, std::move(strategy));
}

Strategy unburdened(const Problem& problem, Strategy strategy,
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

Strategy filled(const Problem& problem, const Strategy& strategy, bool everything) {
  const std::int64_t layers = problem.model.layers;
  const auto solved = [&](const StoredLayers& stored) {
    return unburdened(problem, with_stored(problem, strategy, stored));
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
  if (everything) {
    stored.everything =
        std::max<std::int64_t>(0, largest(layers, [&](std::int64_t n) {
                                 return fit({n, std::max<std::int64_t>(0, stored.attention - n)});
                               }));
    stored.attention = std::max<std::int64_t>(0, stored.attention - stored.everything);
  }
  return solved(stored);
}

std::vector<std::int64_t> chunk_lengths(const Problem& problem, std::int64_t sequence_parallel,
                                        std::int64_t ring, std::int64_t hops) {
  const std::int64_t unit = sequence_parallel * problem.cluster.row_multiple;
  const std::int64_t whole = round_up(problem.seq_len, unit);
  std::vector<std::int64_t> lengths;
  // As many tiles in all hops as without.
  const auto fewer = [&](std::int64_t chunks) {
    return static_cast<std::int64_t>(static_cast<double>(chunks) /
                                     std::sqrt(static_cast<double>(hops)));
  };
  const std::int64_t chunks = std::max<std::int64_t>(2, fewer(kChunksMost));
  const std::int64_t least = std::max(unit, round_up(div_ceil(whole, chunks), unit));
  // Chunks are shorter than 1/64 of the sequence only where that would be over 64K tokens.
  std::int64_t c = 1;
  while (c < least || (fewer(c) < 65536 && c * fewer(64) < whole)) c *= 2;
  const std::int64_t most = std::max(kChunkTokensMost, 2 * least);  // for sequences beyond 90M
  for (; c < whole && c <= most; c *= 2) {
    const std::int64_t length = round_up(c, unit);
    if (length < whole && (lengths.empty() || length > lengths.back())) lengths.push_back(length);
  }
  lengths.push_back(whole);
  // The rates are cuDNN's, so chunks that it does not accept would only seem fast.
  Strategy shortest;
  shortest.mesh.replicas = problem.ranks() / sequence_parallel;
  shortest.tiles.chunk_tokens = least;
  shortest = with_ring(shortest, ring);
  if (!fused_attention(problem, shortest)) return lengths;
  const std::int64_t longest = longest_fused_chunk(problem, sequence_parallel, ring, hops);
  while (lengths.size() > 1 && lengths.back() > longest) lengths.pop_back();
  return lengths;
}

std::vector<std::int64_t> data_parallel_degrees(const Problem& problem) {
  std::vector<std::int64_t> degrees;
  const std::int64_t ranks = problem.ranks();
  for (std::int64_t degree = 1; degree <= ranks; ++degree) {
    if (ranks % degree != 0) continue;
    if (divides_heads(problem.model, ranks / degree)) degrees.push_back(degree);
  }
  return degrees;
}

Strategy over_most_ranks(const Problem& problem, std::int64_t batch) {
  Strategy strategy;
  const std::vector<std::int64_t> degrees = data_parallel_degrees(problem);
  if (!degrees.empty()) strategy.mesh.replicas = degrees.front();
  strategy.micro_batches = std::max<std::int64_t>(1, batch / strategy.mesh.replicas);
  return strategy;
}

Strategy over_all_ranks(const Problem& problem, std::int64_t batch) {
  Strategy strategy = with_ring(Strategy{}, problem.ranks());
  strategy.micro_batches = batch;
  return strategy;
}

std::vector<std::int64_t> checkpoint_intervals(const Problem& problem) {
  std::vector<std::int64_t> intervals;
  for (std::int64_t k = 1; k <= problem.model.layers; ++k) {
    if (problem.model.layers % k == 0) intervals.push_back(k);
  }
  return intervals;
}

Strategy with_ring(Strategy strategy, std::int64_t ring) {
  strategy.mesh.ring = ring;
  if (ring == 1) strategy.keys = Keys::resident;
  if (ring > 1 && strategy.keys == Keys::resident) strategy.keys = Keys::gathered;
  return strategy;
}

std::vector<std::int64_t> rings(const Problem& problem, std::int64_t sequence_parallel) {
  std::vector<std::int64_t> found;
  for (std::int64_t ring = 1; ring <= sequence_parallel; ++ring) {
    if (sequence_parallel % ring != 0) continue;
    if (divides_heads(problem.model, sequence_parallel / ring)) found.push_back(ring);
  }
  return found;  // one rank has all heads, so the largest ring always works
}

Strategy spilled(const Problem& problem, std::int64_t data_parallel, std::int64_t chunk_tokens,
                 std::int64_t ring) {
  Strategy strategy = with_ring(default_strategy(problem), ring);
  strategy.layout = Layout::zigzag;  // in a ring, ranks then have the same work
  strategy.mesh.replicas = data_parallel;
  strategy.tiles.chunk_tokens = chunk_tokens;
  strategy.tiles.serpentine = true;
  const std::int64_t rows = geometry(problem, strategy).local_rows(0);
  strategy.tiles.ffn_rows =
      std::min(rows, std::max<std::int64_t>(8192, least_ffn_rows(problem, strategy)));
  strategy.tiles.loss_rows =
      std::min(rows, std::max<std::int64_t>(4096, least_loss_rows(problem, strategy)));
  return tidied(problem, strategy);
}

}  // namespace fpdt
