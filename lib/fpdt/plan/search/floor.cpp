// Products and attention, as the machine computes them without waiting.
#include "fpdt/plan/search/floor.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "fpdt/cost/demand.h"
#include "fpdt/spec/attention_kernels.h"
#include "fpdt/spec/layer_places.h"

namespace fpdt {
namespace {

// (query, key) pairs, by who computes them.
struct Pairs {
  double in_library = 0, own = 0;

  [[nodiscard]] Pairs operator*(double times) const { return {in_library * times, own * times}; }
  Pairs& operator+=(const Pairs& other) {
    in_library += other.in_library;
    own += other.own;
    return *this;
  }
};

// Those of a head in the first chunks of a layer, on the rank with most: the last of a ring.
// Tiles that a library may compute count as the library's, also where it computes none.
Pairs most_pairs(const Problem& problem, const Geometry& shape, const LayerKind& kind,
                 std::int64_t chunks) {
  const std::int64_t library = library_chunks(kind, problem.seq_len, shape.chunk_rows);
  const bool windows = library == 0 && problem.cluster.cudnn_windows;  // in tiles of own keys
  Pairs pairs;
  if (library >= chunks && shape.ring == 1) {
    const auto tokens = static_cast<double>(std::min(problem.seq_len, chunks * shape.chunk_rows));
    pairs.in_library = attended_pairs(kind, tokens);
    return pairs;
  }
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const std::int64_t rows = shape.query_rows(chunk);
    const std::int64_t run = shape.reversed(chunk) ? 0 : shape.ring - 1;
    const std::int64_t first = chunk * shape.chunk_rows + run * rows;
    const std::int64_t keys =
        windows ? first : std::max<std::int64_t>(0, chunk + 1 - library) * shape.chunk_rows;
    pairs.own += static_cast<double>(visible_pairs(first, rows, 0, keys, kind.window));
    pairs.in_library +=
        static_cast<double>(visible_pairs(first, rows, keys, first + rows - keys, kind.window));
  }
  return pairs;
}

// Multiplications of a row with a layer's feed-forward.
struct Fed {
  double up = 0, down = 0, router = 0;  // with what all rows meet
  double taken_up = 0, taken_down = 0;  // with its experts
};

// By kind.
std::vector<Fed> feed_forwards(const ModelSpec& model) {
  std::vector<Fed> kinds;
  for (const LayerKind& kind : model.kinds) {
    const ModelSpec own = with_layers_of(model, kind);
    const auto product = [&own](std::int64_t columns) {
      return static_cast<double>(own.hidden * columns);
    };
    kinds.push_back({product(own.up_width_of(own.dense_width())), product(own.dense_width()),
                     product(own.experts), product(own.up_width_of(own.experts_width())),
                     product(own.experts_width())});
  }
  return kinds;
}

}  // namespace

std::int64_t compute_floor(const Problem& problem, const Strategy& strategy,
                           const Machine& machine) {
  const ModelSpec& model = problem.model;
  const Geometry shape = geometry(problem, strategy);
  const auto layers = static_cast<double>(model.layers);
  const auto width = static_cast<double>(shape.heads * model.head_dim);
  Pairs forward, backward;
  std::map<std::pair<const LayerKind*, std::int64_t>, Pairs> known;
  const auto pairs_of = [&](const LayerKind& kind, std::int64_t chunks) {
    const auto [at, fresh] = known.try_emplace({&kind, chunks});
    if (fresh) at->second = most_pairs(problem, shape, kind, chunks);
    return at->second;
  };
  const auto qkv = static_cast<double>(model.hidden * model.qkv_width());
  const auto out = static_cast<double>(model.hidden * model.q_width());
  const std::vector<Fed> of_kinds = feed_forwards(model);
  double weights = 3 * layers * (qkv + out);
  double taken = 0;  // by experts
  std::int64_t layer = 0;
  for (const LayerPlace& at : layer_places(strategy, model.layers)) {
    const LayerKind& kind = model.kind_of(layer);
    const Fed& fed = of_kinds[static_cast<std::size_t>(model.kind_at(layer++))];
    const LayerClass& choice = strategy.layer_classes[at.layer_class];
    const bool from_input = choice.recompute == Recompute::from_input;
    const bool rerun = !at.last();
    const std::int64_t repeated = choice.repeated(shape.chunks);
    const std::int64_t again = std::min(problem.seq_len, repeated * shape.chunk_rows);
    const double share = static_cast<double>(again) / static_cast<double>(problem.seq_len);
    const double times = rerun && from_input ? 2 : 1;
    const Pairs all = pairs_of(kind, shape.chunks);
    forward += all * width;
    forward += pairs_of(kind, repeated) * (times * width);
    backward += all * width;
    const double visits = rerun ? 4 : 3;  // forward, backward of twice its products, and a rerun
    weights += visits * (fed.up + fed.down + fed.router);
    taken += visits * (fed.taken_up + fed.taken_down);
    if (rerun) weights += share * qkv + out;
    if (model.post_norms) weights += fed.down;  // backward reads it before its norm
    if (choice.recompute == Recompute::keep_all) continue;
    weights += qkv + fed.router + fed.up + (model.parallel_residual ? 0 : out);
    taken += fed.taken_up;
  }
  const auto tokens = static_cast<double>(problem.seq_len);
  const auto seconds = [&](Work work, double flops, std::int64_t size, bool own = false) {
    Demand demand;
    demand.work = work;
    demand.flops = flops;
    demand.size = size;
    demand.head_dim = model.head_dim;
    demand.own = own;
    return machine.seconds(demand);
  };
  const auto attention = [&](Work work, double flops, const Pairs& pairs) {
    const std::int64_t size = shape.query_rows(0);
    return seconds(work, flops * pairs.in_library, size) +
           (pairs.own > 0 ? seconds(work, flops * pairs.own, size, true) : 0);
  };
  const double each = 2 * tokens / static_cast<double>(shape.sequence_parallel);  // flops
  const std::int64_t rows = shape.extent_product_rows(0);
  // Those of experts have rates of their own, and fewer rows each.
  const std::int64_t rows_of_expert =
      div_ceil(rows * model.active_experts, std::max<std::int64_t>(1, model.experts));
  const double once = attention(Work::attention_forward, kForwardFlops, forward) +
                      attention(Work::attention_backward, kBackwardFlops, backward) +
                      seconds(Work::matmul, each * weights, rows) +
                      (taken > 0 ? seconds(Work::matmul, each * taken, rows_of_expert, true) : 0);
  constexpr double kMost = 9e18;  // centuries; simulation refuses such a step
  return static_cast<std::int64_t>(
      std::min(once * 1e9 * static_cast<double>(strategy.micro_batches), kMost));
}

}  // namespace fpdt
