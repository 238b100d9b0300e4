// Rows of a layer by the price of memory.
#include "fpdt/plan/search/bound.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fpdt/base/math.h"
#include "fpdt/cost/demand.h"
#include "fpdt/spec/attention_kernels.h"
#include "fpdt/spec/checkpoint_bytes.h"

namespace fpdt {
namespace {

double storage_bytes(Storage storage) { return storage == Storage::f32 ? 4 : 2; }

// Seconds of one device for amounts of work in tiles of any size, without launches.
class Clock {
 public:
  Clock(const Problem& problem, Storage storage, std::int64_t sequences, const Machine& machine)
      : model_(problem.model),
        tokens_(problem.seq_len),
        shortest_(shortest_chunk(problem, sequences)),
        rates_(problem.cluster.rates),
        machine_(machine),
        element_(storage == Storage::f32 ? 4 : 2) {
    Strategy smallest;
    smallest.storage = storage;
    smallest.tiles.chunk_tokens = shortest_;
    own_ = !fused_attention(problem, smallest);
    windows_ = !own_ && problem.cluster.cudnn_windows;
  }

  double products(double flops) const { return seconds({.work = Work::matmul, .flops = flops}); }
  // Those of experts.
  double grouped(double flops) const {
    return seconds({.work = Work::matmul, .flops = flops, .own = true});
  }

  // Of all heads of one layer of a kind. A library computes the tiles that a window does not cut.
  // Chunks of c tokens have c (c - 1) / 2 pairs each in the others, once there are as many tokens
  // as the window has; so short chunks have few of them, but slow tiles.
  double attention(Work work, const LayerKind& kind) const {
    const double pairs = attended_pairs(kind, static_cast<double>(tokens_));
    const std::int64_t window = kind.window_in(tokens_);
    if (window == 0) return attention(work, pairs, own_, kAnySize);
    double least = attention(work, pairs, true, kAnySize);
    if (windows_) least = std::min(least, attention(work, pairs, false, kAnySize));
    for (std::int64_t c = shortest_; c <= window && !own_; c *= 2) {
      const std::int64_t size = std::min(2 * c, window);  // of tiles at most
      const double cut =
          std::min(pairs, static_cast<double>(tokens_ - window) * static_cast<double>(c - 1) / 2);
      least = std::min(
          least, attention(work, pairs - cut, false, size) + attention(work, cut, true, size));
    }
    return least;
  }
  // The fastest pair of a row in such a layer.
  double pair(const LayerKind& kind) const {
    const bool own = own_ || (!windows_ && library_chunks(kind, tokens_, shortest_) == 0);
    const std::int64_t window = windows_ ? 0 : kind.window_in(tokens_);
    return attention(Work::attention_forward, 1, own, own || window == 0 ? kAnySize : window);
  }

  // A row of a layer, forward and backward: each op reads and writes what it must. `layer`: the
  // model with what layers of its kind have.
  double elementwise(const ModelSpec& layer) const {
    const std::int64_t narrow = layer.experts_width() + layer.dense_width();
    const std::int64_t up = layer.up_width_of(narrow);
    return memory<Norm>(2 * 2 * model_.hidden) + memory<NormBackward>(2 * 3 * model_.hidden) +
           memory<SplitHeads>(2 * model_.qkv_width()) + memory<JoinHeads>(2 * model_.qkv_width()) +
           memory<Activation>(up + narrow) + memory<ActivationBackward>(2 * up + narrow);
  }

  // The optimizer, for one parameter: it reads a gradient, reads and writes states, and writes the
  // parameter; states on the host pass both ways.
  double update(bool states_on_host) const {
    const std::int64_t states = element_ == 4 ? 2 : 3;
    const double copies = std::max(seconds({.work = Work::h2d, .bytes = kScale * 4 * states}),
                                   seconds({.work = Work::d2h, .bytes = kScale * 4 * states}));
    const double here = element_ == 4 ? memory<AdamW>(7) : memory<AdamW>(15);
    return std::max(here, states_on_host ? copies / kScale : 0);
  }

 private:
  static constexpr std::int64_t kScale = 1 << 20;
  static constexpr std::int64_t kAnySize = std::numeric_limits<std::int64_t>::max();

  // No chunk has fewer tokens: with as many replicas as sequences, each has the fewest ranks.
  static std::int64_t shortest_chunk(const Problem& problem, std::int64_t sequences) {
    const std::int64_t ranks = std::max<std::int64_t>(1, problem.ranks() / sequences);
    const std::int64_t unit = ranks * problem.cluster.row_multiple;
    return std::max(unit, problem.seq_len / kChunksMost);
  }
  double attention(Work work, double pairs, bool own, std::int64_t size) const {
    const auto heads = static_cast<double>(model_.heads);
    const double flops = work == Work::attention_forward ? kForwardFlops : kBackwardFlops;
    Demand tiles{.work = work,
                 .flops = flops * pairs * heads * static_cast<double>(model_.head_dim),
                 .pairs = pairs * heads,
                 .head_dim = model_.head_dim,
                 .own = true};
    const double by_own = seconds(tiles, size);
    tiles.own = false;
    return own ? by_own : std::min(by_own, seconds(tiles, size));
  }

  template <class Op>
  double memory(std::int64_t elements) const {
    return seconds({.kind = static_cast<std::int32_t>(Body{Op{}}.index()),
                    .bytes = kScale * element_ * elements}) /
           kScale;
  }
  // In tiles of the size that is fastest, at most that.
  double seconds(Demand demand, std::int64_t most = kAnySize) const {
    demand.size = most;
    double least = machine_.seconds(demand);
    for (const auto* shares : {&rates_.matmul_shares, &rates_.attention_shares}) {
      for (const SizeShare& point : *shares) {
        demand.size = std::min(point.size, most);
        least = std::min(least, machine_.seconds(demand));
      }
    }
    return least - machine_.seconds({});
  }

  const ModelSpec& model_;
  std::int64_t tokens_;
  std::int64_t shortest_;  // tokens of a chunk
  const Rates& rates_;
  const Machine& machine_;
  std::int64_t element_;
  bool own_;      // no library computes the tiles
  bool windows_;  // one that does computes some of those that a window cuts
};

// What one row of one layer may repeat, in seconds, and store, in bytes.
struct Row {
  double pair = 0;                           // seconds of attention forward for each key
  double keys = 0;                           // that a query sees at most
  double layer = 0;                          // of the products that make the next layer's input
  double linear = 0;                         // of those that backward needs beside attention
  double input = 0, attention = 0, all = 0;  // bytes; all: with the input

  // The least of seconds and priced bytes of the row at this position.
  [[nodiscard]] double least(double price, double position) const {
    const double start = std::min(price * input, layer);
    const double some =
        start + linear + std::min(price * attention, pair * std::min(position, keys));
    return std::min(some, price * all);
  }
};

// Of a layer of `model`, which has what layers of its kind have.
Row row_of(const ModelSpec& model, Storage storage, const Clock& clock) {
  const LayerKind& kind = model.kinds.front();
  const double element = storage_bytes(storage);
  const auto hidden = static_cast<double>(model.hidden);
  const auto queries = static_cast<double>(model.q_width());
  const auto qkv = static_cast<double>(model.qkv_width());
  const auto dense = static_cast<double>(model.dense_width());
  const auto dense_up = static_cast<double>(model.up_width_of(model.dense_width()));
  const auto taken = static_cast<double>(model.experts_width());
  const auto taken_up = static_cast<double>(model.up_width_of(model.experts_width()));
  const bool parallel = model.parallel_residual;
  Row row;
  row.pair = clock.pair(kind);
  row.keys =
      kind.window > 0 ? static_cast<double>(kind.window) : std::numeric_limits<double>::infinity();
  row.layer = clock.products(2 * hidden * (queries + dense + dense_up)) +
              clock.grouped(2 * hidden * (taken + taken_up));
  row.linear = clock.products(2 * hidden * (qkv + (parallel ? 0 : queries) + dense_up)) +
               clock.grouped(2 * hidden * taken_up);
  row.input = element * hidden;
  row.attention = element * queries + 4 * static_cast<double>(model.heads);
  row.all = row.input + row.attention +
            element * (hidden + qkv + dense_up + taken_up + (parallel ? 0 : hidden));
  return row;
}

// The sum over the rows of a sequence. Rows of a piece are as cheap as its first.
double sum_of_rows(const Row& row, double price, double tokens) {
  constexpr int kPieces = 2048;
  double sum = 0;
  for (int i = 0; i < kPieces; ++i) sum += row.least(price, tokens * i / kPieces);
  return sum * tokens / kPieces;
}

// What the budget leaves for the arena of a device at most.
Bytes device_bytes(const Problem& problem) {
  return problem.device_budget - problem.cluster.outside_bytes(0, false);
}

// Parameters of embedding and head, and sums of their gradients in f32, whose home is a device.
Bytes kept_bytes(const ModelSpec& model, Storage storage) {
  const std::int64_t ends = parameter_count(model) - layers_parameter_count(model);
  return Bytes{mul(storage == Storage::f32 ? 4 + 4 : 2 + 4, ends)};
}

// All parameters and gradients with two moments in f32, and master weights beside bf16.
Bytes state_bytes(const ModelSpec& model, Storage storage, Storage gradients) {
  const Bytes f32{mul(storage == Storage::f32 ? 4 + 4 + 8 : 2 + 4 + 12, parameter_count(model))};
  const std::int64_t layers = layers_parameter_count(model);
  return f32 - Bytes{gradients == Storage::f32 ? 0 : mul(2, layers)};
}

// The largest value of a concave function of a price.
template <class Value>
double largest(Value value) {
  double best = value(0);
  double low = 1e-18, high = 1e-3;  // seconds a byte
  constexpr int kRounds = 80;
  for (int i = 0; i < kRounds; ++i) {
    const double left = low * std::cbrt(high / low), right = high / std::cbrt(high / low);
    const double at_left = value(left), at_right = value(right);
    best = std::max({best, at_left, at_right});
    (at_left < at_right ? low : high) = at_left < at_right ? left : right;
  }
  return best;
}

// Segments that grow by a layer from one to the next need as many inputs as there are segments.
Bytes input_bytes(const Problem& problem, Storage storage) {
  std::int64_t inputs = 1;
  while (inputs * (inputs + 1) / 2 < problem.model.layers) ++inputs;
  const auto each = static_cast<std::int64_t>(storage_bytes(storage)) * problem.model.hidden;
  return Bytes{mul(mul(inputs, each), problem.seq_len)};
}

// All arenas at most.
Bytes pool_bytes(const Problem& problem) {
  const ClusterSpec& cluster = problem.cluster;
  const Bytes files = std::max(
      cluster.devices_per_node * loading_bytes(problem.model),
      cluster.devices_per_node * saving_bytes(problem.model) + reordering_bytes(problem.model));
  return cluster.devices() * device_bytes(problem) + cluster.nodes * (problem.host_budget - files);
}

}  // namespace

Bound bound_of(const Problem& problem, Storage storage, Storage gradients, std::int64_t sequences,
               const Machine& machine) {
  const ModelSpec& model = problem.model;
  const Clock clock(problem, storage, sequences, machine);
  const auto tokens = static_cast<double>(problem.seq_len);
  const auto layers = static_cast<double>(model.layers);
  const auto hidden = static_cast<double>(model.hidden);
  const std::vector<std::int64_t> of_kinds = layers_of_kinds(model);
  double attention = 0, elementwise = 0;  // of all layers
  double dense = 0, taken = 0;            // widths of their feed-forwards
  std::vector<Row> rows;
  for (std::size_t k = 0; k < of_kinds.size(); ++k) {
    const LayerKind& kind = model.kinds[k];
    attention +=
        static_cast<double>(of_kinds[k]) * (clock.attention(Work::attention_forward, kind) +
                                            clock.attention(Work::attention_backward, kind));
    const ModelSpec own = with_layers_of(model, kind);
    const auto count = static_cast<double>(of_kinds[k]);
    elementwise += count * tokens * clock.elementwise(own);
    dense += count * static_cast<double>(own.dense_width() + own.up_width_of(own.dense_width()));
    taken +=
        count * static_cast<double>(own.experts_width() + own.up_width_of(own.experts_width()));
    rows.push_back(row_of(own, storage, clock));
  }
  const auto widths = static_cast<double>(model.qkv_width() + model.q_width());
  const auto words = static_cast<double>(model.vocabulary);
  // Forward once, backward twice.
  const double products = clock.products(6 * hidden * tokens * (layers * widths + dense + words)) +
                          clock.grouped(6 * hidden * tokens * taken);
  const Bytes states = state_bytes(model, storage, gradients);
  const Bytes pool = pool_bytes(problem);
  const auto room = static_cast<double>(std::max(pool - states, Bytes{}).value);
  const double repeats = largest([&](double price) {
    double seconds = -price * room;
    for (std::size_t k = 0; k < rows.size(); ++k) {
      seconds += static_cast<double>(of_kinds[k]) * sum_of_rows(rows[k], price, tokens);
    }
    return seconds;
  });
  // Parameters and gradients may leave room for them on the devices, where they stay in whole.
  const Bytes optimizer{mul(storage == Storage::f32 ? 8 : 12, parameter_count(model))};
  const bool on_host = optimizer > problem.ranks() * device_bytes(problem);
  const double updates = static_cast<double>(parameter_count(model)) * clock.update(on_host);
  const double sequence = attention + elementwise + products + repeats;
  Bound bound;
  bound.step_seconds =
      (static_cast<double>(sequences) * sequence + updates) / static_cast<double>(problem.ranks());
  bound.device = {Bytes{kept_bytes(model, storage).value / problem.ranks()}, device_bytes(problem)};
  bound.all = {states + input_bytes(problem, storage), pool};
  return bound;
}

}  // namespace fpdt
