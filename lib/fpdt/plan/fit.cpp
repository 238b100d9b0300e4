// Budgets, and the parts of a strategy that are solved in closed form.
#include "fpdt/plan/fit.h"

#include <algorithm>
#include <numeric>

#include "fpdt/base/largest.h"
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

// The largest n in 0 .. most whose bytes are within the limit; -1: none. Bytes ascend with n,
// nearly in a line, so few n are looked at.
template <class BytesOf>
std::int64_t largest_within(std::int64_t most, Bytes limit, BytesOf bytes_of,
                            std::int64_t guess = -1) {
  struct End {
    std::int64_t n;
    double bytes;
  };
  const auto at = [&](std::int64_t n) {
    return End{n, static_cast<double>(bytes_of(n).value) - static_cast<double>(limit.value)};
  };
  if (guess >= 0 && guess < most && at(guess).bytes <= 0 && at(guess + 1).bytes > 0) return guess;
  End high = at(most);
  if (high.bytes <= 0) return most;
  End low = at(0);
  if (low.bytes > 0) return -1;
  for (bool halve = false; high.n - low.n > 1; halve = !halve) {
    const std::int64_t width = high.n - low.n;
    const double part = -low.bytes / (high.bytes - low.bytes);
    const auto step = static_cast<std::int64_t>(part * static_cast<double>(width));
    // Next to the line's point, so that one of both ends is close to it.
    const std::int64_t next =
        low.n + (halve && width > 4 ? width / 2 : std::clamp<std::int64_t>(step, 1, width - 1));
    const End middle = at(next);
    (middle.bytes <= 0 ? low : high) = middle;
  }
  return low.n;
}

// The n where a line through the bytes of 1 and 2 meets the limit, as a guess; -1: none. Which
// buffers are alive is the same for all but none and `most`, so they are cheap to look at.
template <class BytesOf>
std::int64_t by_first_two(std::int64_t most, Bytes limit, BytesOf bytes_of) {
  constexpr std::int64_t kFew = 4;
  if (most < kFew) return -1;
  const Bytes one = bytes_of(1);
  if (one > limit) return 0;
  const Bytes each = bytes_of(2) - one;
  if (each <= Bytes{}) return -1;
  const std::int64_t more = (limit - one).value / each.value;
  return 1 + more < most ? 1 + more : -1;
}

// What the devices of a node have left, and with its host as one pool, for a strategy that has on
// the host what may be there.
struct Left {
  Bytes devices, pool;
};

Left left_by(const Problem& problem, const Strategy& strategy) {
  const Usage need = usage(problem, strategy);
  const Bytes devices = problem.cluster.devices_per_node * (problem.device_budget - need.device);
  return {devices, devices + problem.host_budget - need.host_node};
}

// By how many bytes a node lacks memory: as one pool, or on the devices, from where nothing more
// can move.
Bytes lack(const Problem& problem, const Strategy& strategy) {
  const Left left = left_by(problem, strategy);
  return Bytes{} - std::min(left.devices, left.pool);
}

}  // namespace

Bytes outside_bytes(const Problem& problem, const Strategy& strategy, Bytes pinned) {
  const Connections connections = connections_of(problem, strategy);
  return problem.cluster.outside_bytes(connections.peers, connections.across, pinned);
}

Usage usage(const Problem& problem, const Strategy& strategy, const Prediction& prediction) {
  Usage need;
  need.arena = prediction.device;
  need.outside = outside_bytes(problem, strategy, prediction.host_pinned);
  need.mapping = problem.cluster.outside.page_tables(prediction.host_pinned);
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
    const auto need = [&](std::int64_t kept) {
      return usage(problem, with_kept(strategy, tensor, fraction_of(kept, chunks)));
    };
    const auto device = [&](std::int64_t kept) { return need(kept).device; };
    const std::int64_t room = largest_within(chunks, problem.device_budget, device,
                                             by_first_two(chunks, problem.device_budget, device));
    if (room <= 0) continue;
    const std::int64_t spare = largest_within(
        room, problem.host_budget, [&](std::int64_t less) { return need(room - less).host_node; });
    strategy =
        with_kept(strategy, tensor, fraction_of(room - std::max<std::int64_t>(spare, 0), chunks));
  }
  return strategy;
}

Strategy with_stored_on_host(Strategy strategy) {
  strategy = with_kept(std::move(strategy), TensorClass::attention_output, 0);
  return with_kept(std::move(strategy), TensorClass::layer_input, 0);
}

Strategy with_inputs_relieved(const Problem& problem, const Strategy& strategy) {
  return with_host_relieved(problem, with_stored_on_host(strategy),
                            {TensorClass::layer_input, TensorClass::attention_output});
}

Strategy with_device_relieved(const Problem& problem, Strategy strategy) {
  const std::int64_t chunks = geometry(problem, strategy).chunks;
  // What passes once between device and host, before what passes for each row.
  for (const TensorClass tensor :
       {TensorClass::layer_input, TensorClass::attention_output, TensorClass::lse,
        TensorClass::layer_gradient, TensorClass::q, TensorClass::dkv, TensorClass::kv}) {
    if (device_fits(problem, usage(problem, strategy))) return strategy;
    if (strategy.layer_classes.front().kept(tensor) == 0) continue;
    const std::int64_t kept = largest_within(chunks, problem.device_budget, [&](std::int64_t n) {
      return usage(problem, with_kept(strategy, tensor, fraction_of(n, chunks))).device;
    });
    strategy = with_kept(strategy, tensor, fraction_of(std::max<std::int64_t>(kept, 0), chunks));
  }
  return strategy;
}

std::int64_t least_threshold(const Problem& problem, const Strategy& strategy, std::int64_t guess) {
  const std::int64_t layers = problem.model.layers;
  const std::int64_t most = thresholds(problem, strategy);
  const auto lacking = [&](std::int64_t chunks) {
    return lack(problem, with_stored_from(problem, strategy, {most - chunks, layers}));
  };
  return most - largest_within(most, Bytes{}, lacking, guess < 0 ? -1 : most - guess);
}

bool may_fit(const Problem& problem, const Strategy& strategy) {
  return lack(problem, strategy) <= Bytes{};
}

Bytes left_for_inputs(const Problem& problem, const Strategy& strategy) {
  const Left left = left_by(problem, strategy);
  const bool host = strategy.layer_classes.front().kept(TensorClass::layer_input) == 0;
  return host && left.devices >= Bytes{} ? left.pool : left.devices;
}

Strategy with_most_stored(const Problem& problem, const Strategy& strategy) {
  const auto fit = [&](const Strategy& stored) {
    return check(problem, stored).empty() &&
           within(problem, usage(problem, with_host_relieved(problem, stored)));
  };
  const auto lacking = [&](const Strategy& stored) {
    return static_cast<double>(lack(problem, stored).value);
  };
  const std::int64_t least = least_threshold(problem, strategy);
  return with_host_relieved(problem, with_least_repeated(problem, strategy, fit, least, lacking));
}

std::int64_t most_everything(const Problem& problem, const Strategy& strategy) {
  const std::int64_t layers = problem.model.layers;
  const std::int64_t most = largest_within(layers, Bytes{}, [&](std::int64_t all) {
    return lack(problem, with_stored(problem, strategy, {all, layers - all}));
  });
  return std::max<std::int64_t>(most, 0);
}

Strategy with_everything(const Problem& problem, const Strategy& strategy) {
  const std::int64_t layers = problem.model.layers;
  const auto made = [&](std::int64_t all) {
    return with_host_relieved(problem, with_stored(problem, strategy, {all, layers - all}));
  };
  const std::int64_t most = most_everything(problem, strategy);
  return made(
      largest_that_fits(most, most, [&](std::int64_t all) { return fits(problem, made(all)); }));
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

// A gather of all experts takes as long as their products with 10^4 rows that take a tenth of them:
// 2 bytes over 300 GB/s, and 2 r k / X flops at 250 TFLOP/s. Sums take twice as long. Links may be
// slower, so slices outside of tiles are another start.
Strategy sliced(const Problem& problem, Strategy strategy, ExpertLoop loop) {
  constexpr std::int64_t kRows = 32768, kSlices = 4;
  if (!problem.model.has_experts() || problem.ranks() == 1 || strategy.zero < 2) return strategy;
  strategy.tiles.expert_slices = std::gcd(problem.model.experts, kSlices);
  strategy.tiles.expert_loop = loop;
  strategy.tiles.ffn_rows = std::min(geometry(problem, strategy).product_rows(0),
                                     std::max(kRows, least_ffn_rows(problem, strategy)));
  return canonical(problem, strategy);
}

Strategy in_one_tile(const Problem& problem, Strategy strategy) {
  strategy.tiles.ffn_rows = 0;
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
