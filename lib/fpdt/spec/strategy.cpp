// Checks and defaults of a strategy.
#include "fpdt/spec/strategy.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include <fmt/format.h>

#include "fpdt/base/math.h"
#include "fpdt/spec/layer_places.h"

namespace fpdt {
namespace {

// Tokens are int32 positions on the device, and products of them with widths must fit 63 bits.
constexpr std::int64_t kTokenLimit = std::int64_t{1} << 30;
// Most tiles of one kind in a sequence on one rank; it keeps a block near 100K ops.
constexpr std::int64_t kTileLimit = 8192;

struct Findings {
  std::vector<Diagnostic> list;
  // `field` is the path of a key of the strategy, or "" for a mistake in the problem.
  template <class... T>
  void operator()(std::string_view code, std::string_view field, fmt::format_string<T...> text,
                  T&&... values) {
    list.push_back({std::string(code), field.empty() ? "problem" : "strategy",
                    fmt::format(text, std::forward<T>(values)...), std::string(field)});
  }
};

// The largest number of at most `most` ranks that divides `share` and into which layers can be cut.
std::int64_t nearest_tensor(const ModelSpec& model, std::int64_t share, std::int64_t most) {
  std::int64_t ranks = std::clamp<std::int64_t>(most, 1, share);
  while (share % ranks != 0 || !divides_layers(model, ranks)) --ranks;
  return ranks;
}

// `share`: the ranks that share the heads, of which `tensor` share each product.
void check_heads(Findings& wrong, const ModelSpec& model, std::int64_t share, std::int64_t tensor) {
  if (tensor > 1 && !model.uncut().empty()) {
    wrong("P102", "mesh.tensor",
          "mesh.tensor: the {} of {} are not cut, so ranks cannot share products; use 1",
          model.uncut(), model.name);
  } else if (!divides_layers(model, tensor)) {
    wrong(
        "P102", "mesh.tensor",
        "mesh.tensor: {} query heads, {} KV heads and {} columns of the feed-forward of {} cannot "
        "be cut in {} parts; use {}",
        model.heads, model.kv_heads, model.feed_forward, model.name, tensor,
        nearest_tensor(model, share, tensor));
  } else if (model.heads % share != 0) {
    wrong("P102", "mesh",
          "heads: {} query heads of {} do not divide by {} ranks; raise "
          "mesh.replicas, or mesh.ring with keys: gathered, or use a cluster whose devices divide "
          "{}",
          model.heads, model.name, share, model.heads);
  } else if (!divides_heads(model, share)) {
    wrong("P102", "mesh", "kv_heads: {} KV heads of {} neither divide by nor into {} ranks",
          model.kv_heads, model.name, share);
  }
}

void check_parallelism(Findings& wrong, const Problem& problem, const Strategy& strategy) {
  const std::int64_t ranks = problem.ranks();
  if (strategy.mesh.replicas < 1 || ranks % strategy.mesh.replicas != 0) {
    wrong("P101", "mesh.replicas", "mesh.replicas: {} does not divide the {} devices of cluster {}",
          strategy.mesh.replicas, ranks, problem.cluster.name);
    return;
  }
  const std::int64_t sequence_parallel = ranks / strategy.mesh.replicas;
  if (strategy.mesh.ring < 1 || sequence_parallel % strategy.mesh.ring != 0) {
    wrong("P101", "mesh.ring", "mesh.ring: {} does not divide the {} ranks of a replica",
          strategy.mesh.ring, sequence_parallel);
    return;
  }
  const std::int64_t share = sequence_parallel / strategy.mesh.ring;  // of the heads
  if (strategy.mesh.tensor < 1 || share % strategy.mesh.tensor != 0) {
    wrong("P101", "mesh.tensor", "mesh.tensor: {} does not divide the {} ranks {}; use {}",
          strategy.mesh.tensor, share,
          strategy.mesh.ring > 1 ? "that share the heads" : "of a replica",
          nearest_tensor(problem.model, share, strategy.mesh.tensor));
    return;
  }
  const std::int64_t head_ranks = share / strategy.mesh.tensor;
  if (strategy.mesh.heads != 0 && strategy.mesh.heads != head_ranks) {
    const auto side = [](std::string_view name, std::int64_t size) {
      return size > 1 ? fmt::format(" and {} {}", name, size) : "";
    };
    wrong(
        "P101", "mesh.heads",
        "mesh.heads: {} with {} replicas{}{} does not make the {} devices of cluster {}; use rest",
        strategy.mesh.heads, strategy.mesh.replicas, side("a ring of", strategy.mesh.ring),
        side("tensor", strategy.mesh.tensor), ranks, problem.cluster.name);
    return;
  }
  check_heads(wrong, problem.model, share, strategy.mesh.tensor);
  if (strategy.micro_batches < 1 || strategy.micro_batches > 65536) {
    wrong("P103", "micro_batches", "micro_batches: expected 1 to 65536, found {}",
          strategy.micro_batches);
  }
  if (strategy.zero < 0 || strategy.zero > 3) {
    wrong("P103", "zero", "zero: expected a stage from 0 to 3, found {}", strategy.zero);
  }
  if (strategy.copies.optimizer_tile < 1024) {
    wrong("P103", "copies.optimizer_tile",
          "copies.optimizer_tile: expected at least 1024 elements, found {}",
          strategy.copies.optimizer_tile);
  }
}

// Each hop of a ring repeats the tiles of all chunks.
std::int64_t chunks_most(const Strategy& strategy) {
  const std::int64_t hops = strategy.keys == Keys::ring ? strategy.mesh.ring : 1;
  const double most = static_cast<double>(kChunksMost) / std::sqrt(static_cast<double>(hops));
  return std::max<std::int64_t>(2, static_cast<std::int64_t>(most));
}

// Values that have a key but no lowering yet.
void check_served(Findings& wrong, const Problem& problem, const Strategy& strategy) {
  const auto only = [&](std::string_view key, bool served, std::string_view found,
                        std::string_view instead) {
    if (served) return;
    wrong("P109", key, "{}: {} cannot be lowered yet; use {}", key, found, instead);
  };
  const auto number = [](std::int64_t n) { return fmt::format("{}", n); };
  const auto share = [](double kept) { return kept == 0 ? "host" : fmt::format("{}", kept); };
  only("mesh.ring", strategy.mesh.ring == 1 || strategy.keys != Keys::resident,
       fmt::format("{} with keys: {}", strategy.mesh.ring, word(strategy.keys)),
       "1, or keys: gathered");
  only("tiles.long_tiles",
       !strategy.tiles.long_tiles || strategy.mesh.ring == 1 || strategy.keys != Keys::ring,
       "true with keys: ring", "false");
  only("head_stages", strategy.head_stages == 1, number(strategy.head_stages), "1");
  for (const StateClass one : {StateClass::parameters, StateClass::gradients, StateClass::states}) {
    const double kept = strategy.kept(one);
    only(fmt::format("keep.{}", word(one)), kept == 0 || kept == 1, share(kept), "device or host");
  }
  const bool several = problem.ranks() > 1;
  const auto stage = [&](StateClass one, std::int64_t least) {
    only(fmt::format("keep.{}", word(one)),
         strategy.kept(one) == 1 || !several || strategy.zero >= least,
         fmt::format("host with zero: {}", strategy.zero),
         fmt::format("device, or zero: {}", least));
  };
  stage(StateClass::parameters, 3);
  stage(StateClass::gradients, 2);
  only("keep.parameters",
       strategy.kept(StateClass::parameters) == 1 || strategy.zero_groups != ZeroGroups::hybrid ||
           !has_nodes_of_several(problem.cluster),
       "host with zero_groups: hybrid", "device, or zero_groups: hierarchical");
  const bool rounded = strategy.gradients != Storage::f32;
  only("gradients", !rounded || strategy.storage != Storage::f32, "bf16 with storage: f32", "f32");
  only("gradients", !rounded || !several || strategy.zero >= 1,
       fmt::format("bf16 with zero: {}", strategy.zero), "f32, or zero: 1");
}

void check_layer_classes(Findings& wrong, const Problem& problem, const Strategy& strategy) {
  if (strategy.layer_classes.empty() || strategy.layer_classes.size() > 4) {
    wrong("P105", "layer_classes", "layer_classes: expected one to four, found {}",
          strategy.layer_classes.size());
    return;
  }
  std::int64_t layers = 0;
  for (std::size_t i = 0; i < strategy.layer_classes.size(); ++i) {
    const LayerClass& one = strategy.layer_classes[i];
    const bool last = i + 1 == strategy.layer_classes.size();
    if (one.layers < 0 || one.layers > problem.model.layers || (one.layers == 0 && !last)) {
      wrong("P105", "layer_classes",
            "layer_classes[{}].layers: expected 1 to {} (or rest in the last), found {}", i,
            problem.model.layers, one.layers);
      return;
    }
    layers += one.layers;
    for (std::size_t k = 0; k < kTensorClasses; ++k) {
      if (!(one.keep[k] >= 0 && one.keep[k] <= 1)) {
        wrong("P106", "layer_classes",
              "layer_classes[{}].keep.{}: expected a fraction 0 to 1, found {}", i,
              word(static_cast<TensorClass>(k)), one.keep[k]);
      }
    }
  }
  // The gradient of the residual stream goes through all layers, which share one home for it.
  const LayerClass& first = strategy.layer_classes.front();
  for (std::size_t i = 1; i < strategy.layer_classes.size(); ++i) {
    constexpr TensorClass kGradient = TensorClass::layer_gradient;
    if (strategy.layer_classes[i].kept(kGradient) == first.kept(kGradient)) continue;
    wrong("P106", "layer_classes",
          "layer_classes[{}].keep.{}: must equal that of the first class, {}", i, word(kGradient),
          first.kept(kGradient));
  }
  for (std::size_t i = 0; i < strategy.layer_classes.size() && problem.model.has_experts(); ++i) {
    if (strategy.layer_classes[i].recompute != Recompute::keep_all) continue;
    wrong("P105", "layer_classes",
          "layer_classes[{}].recompute: keep_all does not serve experts, which make their rows "
          "again; use keep_attention",
          i);
  }
  const bool rest = strategy.layer_classes.back().layers == 0;
  if (layers > problem.model.layers || (!rest && layers != problem.model.layers) ||
      (rest && layers >= problem.model.layers)) {
    wrong("P105", "layer_classes", "layer_classes have {} layers, but {} has {}", layers,
          problem.model.name, problem.model.layers);
  }
}

void check_segments(Findings& wrong, const Problem& problem, const Strategy& strategy) {
  const std::int64_t layers = problem.model.layers;
  if (strategy.segments.empty()) {
    wrong("P107", "segments", "segments: expected the layers of each, found none");
    return;
  }
  std::int64_t rest = layers;  // for segments of the last length
  for (const std::int64_t& length : strategy.segments) {
    if (length < 1 || length > layers) {
      wrong("P107", "segments", "segments: expected 1 to {} layers, found {}", layers, length);
      return;
    }
    if (&length != &strategy.segments.back()) rest -= length;
  }
  const std::int64_t last = strategy.segments.back();
  if (rest <= 0) {
    wrong("P107", "segments", "segments: those before the last have {} layers, and {} has {}",
          layers - rest, problem.model.name, layers);
    return;
  }
  if (rest % last != 0) {
    wrong("P107", "segments", "segments: {} does not divide the {} layers{}", last, rest,
          rest < layers ? " that the others leave" : "");
    return;
  }
  for (const LayerPlace& at : layer_places(strategy, layers)) {
    if (at.length == 1) continue;
    if (strategy.layer_classes[at.layer_class].recompute != Recompute::keep_all) continue;
    wrong("P107", "segments",
          "segments of several layers repeat forward inside, and layer_classes[{}] stores "
          "everything: set recompute: keep_attention, or give its layers segments of one",
          at.layer_class);
    return;
  }
}

void check_stored_chunks(Findings& wrong, const Problem& problem, const Strategy& strategy) {
  const std::int64_t chunks = geometry(problem, strategy).chunks;
  const bool reruns = longest_segment(strategy) > 1;
  for (std::size_t i = 0; i < strategy.layer_classes.size(); ++i) {
    const std::int64_t first = strategy.layer_classes[i].first_stored_chunk;
    const std::string key = fmt::format("layer_classes[{}].first_stored_chunk", i);
    const std::int64_t most = reruns ? chunks : chunks - 1;
    if (first < 0 || first > most) {
      wrong("P105", key, "{}: expected 0 to {}, {}, found {}", key, most,
            reruns ? "the number of chunks" : "the last chunk", first);
    } else if (strategy.extent == Extent::whole && first > 0 && first < chunks) {
      wrong("P109", key, "{}: {} with extent: whole cannot be lowered yet; use 0", key, first);
    }
  }
}

void check_chunks(Findings& wrong, const Problem& problem, const Strategy& strategy) {
  const std::int64_t ranks = problem.ranks() / strategy.mesh.replicas;
  const std::int64_t unit = ranks * problem.cluster.row_multiple;
  if (strategy.tiles.chunk_tokens < 1 || strategy.tiles.chunk_tokens > kTokenLimit) {
    wrong("P104", "tiles.chunk_tokens", "tiles.chunk_tokens: expected 1 to {}, found {}",
          kTokenLimit, strategy.tiles.chunk_tokens);
    return;
  }
  if (strategy.tiles.chunk_tokens % unit != 0) {
    wrong("P104", "tiles.chunk_tokens",
          "tiles.chunk_tokens: {} must be a multiple of {} ({} ranks x row multiple {}); nearest "
          "is {}",
          strategy.tiles.chunk_tokens, unit, ranks, problem.cluster.row_multiple,
          round_up(strategy.tiles.chunk_tokens, unit));
  }
  if (strategy.mesh.tensor > 1 && strategy.extent == Extent::whole &&
      problem.seq_len > strategy.tiles.chunk_tokens) {
    wrong("P109", "extent",
          "extent: whole with mesh.tensor: {} and several chunks cannot be lowered yet; use chunk",
          strategy.mesh.tensor);
  }
  const std::int64_t most = chunks_most(strategy);
  if (div_ceil(problem.seq_len, strategy.tiles.chunk_tokens) > most) {
    wrong("P104", "tiles.chunk_tokens",
          "tiles.chunk_tokens: {} makes {} chunks of {} tokens, above the limit of {}; use {}",
          strategy.tiles.chunk_tokens, div_ceil(problem.seq_len, strategy.tiles.chunk_tokens),
          problem.seq_len, most, round_up(div_ceil(problem.seq_len, most), unit));
  }
  const auto tile = [&](std::string_view name, std::int64_t value) {
    if (value < 0) wrong("P104", name, "{}: expected 0 (whole) or more, found {}", name, value);
  };
  tile("tiles.ffn_rows", strategy.tiles.ffn_rows);
  tile("tiles.loss_rows", strategy.tiles.loss_rows);
  tile("tiles.loss_vocabulary", strategy.tiles.loss_vocabulary);
  if (strategy.copies.prefetch_depth < 0 || strategy.copies.prefetch_depth > 64) {
    wrong("P104", "copies.prefetch_depth", "copies.prefetch_depth: expected 0 to 64, found {}",
          strategy.copies.prefetch_depth);
  }
}

// Where sequences hold documents, each padding token is a document of its own, at position 0.
// Otherwise positions go on through the padding.
void check_positions(Findings& wrong, const Problem& problem, const Strategy& strategy) {
  const std::int64_t positions = problem.model.learned_positions;
  const Geometry shape = geometry(problem, strategy);
  const std::int64_t padded = shape.padded_tokens;
  if (positions == 0 || problem.documents || padded <= positions) return;
  wrong("P100", "",
        "seq-len: {} tokens are padded to {}, and {} has {} learned positions; use at most {}, or "
        "--documents",
        problem.seq_len, padded, problem.model.name, positions,
        positions - positions % (shape.sequence_parallel * problem.cluster.row_multiple));
}

std::int64_t vocabulary_tiles(const Problem& problem, const Strategy& strategy) {
  const std::int64_t vocabulary = problem.model.vocabulary;
  const std::int64_t tile = strategy.tiles.loss_vocabulary;
  return tile > 0 ? div_ceil(vocabulary, tile) : 1;
}

// The verifier follows the keys that ranks exchange from rank to rank.
void check_exchanges(Findings& wrong, const Problem& problem, const Strategy& strategy) {
  const Geometry shape = geometry(problem, strategy);
  if (shape.hops == 1) return;
  const auto classes = static_cast<std::int64_t>(strategy.layer_classes.size());
  const std::int64_t most = kExchangesMost / (classes * shape.hops) / problem.ranks();  // chunks
  if (shape.chunks <= most) return;
  if (most == 0) {
    wrong("P104", "mesh.ring",
          "mesh.ring: {} hops of {} ranks exchange more keys than can be verified; use keys: "
          "gathered, or fewer ranks",
          shape.hops, problem.ranks());
    return;
  }
  const std::int64_t unit = shape.sequence_parallel * problem.cluster.row_multiple;
  wrong(
      "P104", "tiles.chunk_tokens",
      "tiles.chunk_tokens: {} makes {} chunks, and the keys that {} ranks exchange in {} hops can "
      "be verified for {}; use {}",
      strategy.tiles.chunk_tokens, shape.chunks, problem.ranks(), shape.hops, most,
      round_up(div_ceil(problem.seq_len, most), unit));
}

void check_slices(Findings& wrong, const Problem& problem, const Strategy& strategy) {
  const std::int64_t slices = strategy.tiles.expert_slices;
  const ModelSpec& model = problem.model;
  if (slices == 1 || (slices > 1 && !model.has_experts())) return;
  const std::int64_t experts = std::max<std::int64_t>(1, model.experts);
  if (slices < 1 || experts % slices != 0) {
    std::int64_t fewer = std::clamp<std::int64_t>(slices, 1, experts);
    while (experts % fewer != 0) --fewer;
    wrong("P104", "tiles.expert_slices",
          "tiles.expert_slices: {} does not divide {} experts; use {}", slices, experts, fewer);
  } else if (problem.ranks() == 1 || strategy.zero < 2) {
    wrong(
        "P104", "tiles.expert_slices",
        "tiles.expert_slices: {} needs several ranks and zero 2 or 3, so that sums of slices have "
        "a place to be added up; use 1",
        slices);
  }
}

void check_tiles(Findings& wrong, const Problem& problem, const Strategy& strategy) {
  const Geometry shape = geometry(problem, strategy);
  // Of rows that each rank has of its own, or that several share.
  const auto tiles = [&](std::int64_t tile, std::int64_t sharers) {
    const std::int64_t chunk = std::max<std::int64_t>(1, shape.local_rows(0) * sharers);
    return div_ceil(shape.local_tokens() * sharers, tile > 0 ? std::min(tile, chunk) : chunk);
  };
  const auto many = [&](std::string_view name, std::int64_t value, std::int64_t count,
                        std::int64_t least) {
    if (count <= kTileLimit) return;
    wrong("P104", name, "{}: {} makes {} tiles, above the limit of {}; use {}", name, value, count,
          kTileLimit, least);
  };
  many("tiles.ffn_rows", strategy.tiles.ffn_rows,
       tiles(strategy.tiles.ffn_rows, shape.tensor_ranks), least_ffn_rows(problem, strategy));
  check_slices(wrong, problem, strategy);
  // Pairs of rows and experts are counted in 32 bits, and their sources and slots stand together.
  if (const ModelSpec& model = problem.model; model.has_experts()) {
    const std::int64_t most = (INT32_MAX - model.experts) / (2 * model.active_experts);
    const std::int64_t whole = shape.product_rows(0);
    const std::int64_t each = strategy.tiles.ffn_rows > 0 ? strategy.tiles.ffn_rows : whole;
    if (std::min(each, whole) > most) {
      wrong("P104", "tiles.ffn_rows",
            "tiles.ffn_rows: {} rows that take {} experts each are more than {}; use at most {}",
            std::min(each, whole), model.active_experts, INT32_MAX, most);
    }
  }
  const std::int64_t rows = tiles(strategy.tiles.loss_rows, 1);
  const std::int64_t across = vocabulary_tiles(problem, strategy);
  if (tiles(0, 1) * across > kTileLimit) {
    many("tiles.loss_vocabulary", strategy.tiles.loss_vocabulary, rows * across,
         div_ceil(problem.model.vocabulary, std::max<std::int64_t>(1, kTileLimit / rows)));
  } else {
    many("tiles.loss_rows", strategy.tiles.loss_rows, rows * across,
         least_loss_rows(problem, strategy));
  }
  if (!strategy.offloads_states()) return;
  std::int64_t most = mul(problem.model.vocabulary, problem.model.hidden);
  for (const LayerRun& run : layer_runs(problem.model)) {
    most = std::max(most, layer_parameter_count(run.model));
  }
  const std::int64_t largest = div_ceil(most, problem.ranks());
  many("copies.optimizer_tile", strategy.copies.optimizer_tile,
       div_ceil(largest, strategy.copies.optimizer_tile), div_ceil(largest, kTileLimit));
}

}  // namespace

std::vector<Diagnostic> check(const Problem& problem, const Strategy& strategy) {
  Findings wrong;
  wrong.list = check(problem.model);
  for (Diagnostic& finding : check(problem.cluster)) wrong.list.push_back(std::move(finding));
  if (problem.seq_len < 1 || problem.seq_len > kTokenLimit) {
    wrong("P100", "", "seq-len: expected 1 to {} tokens, found {}", kTokenLimit, problem.seq_len);
  }
  if (!wrong.list.empty()) return wrong.list;
  // The bytes that a model stores for a sequence must fit 63 bits.
  constexpr double kElementsMost = static_cast<double>(std::int64_t{1} << 56);
  const ModelSpec& model = problem.model;
  std::int64_t width = model.qkv_width();
  for (const LayerRun& run : layer_runs(model)) {
    width = std::max({width, run.model.up_width(), run.model.up_width_of(run.model.dense_width())});
  }
  const double kept = static_cast<double>(problem.seq_len) * static_cast<double>(model.layers) *
                      static_cast<double>(width);
  if (kept > kElementsMost) {
    wrong("P100", "", "seq-len: {} tokens through {} layers of width {} exceed what can be counted",
          problem.seq_len, model.layers, width);
  }
  if (problem.model.learned_positions > 0 && problem.seq_len > problem.model.learned_positions) {
    wrong("P100", "", "seq-len: {} tokens exceed the {} learned positions of {}", problem.seq_len,
          problem.model.learned_positions, problem.model.name);
  }
  check_served(wrong, problem, strategy);
  check_parallelism(wrong, problem, strategy);
  if (!wrong.list.empty()) return wrong.list;
  check_chunks(wrong, problem, strategy);
  if (wrong.list.empty()) check_positions(wrong, problem, strategy);
  if (wrong.list.empty()) check_tiles(wrong, problem, strategy);
  check_layer_classes(wrong, problem, strategy);
  if (wrong.list.empty()) check_segments(wrong, problem, strategy);
  if (wrong.list.empty()) check_stored_chunks(wrong, problem, strategy);
  if (wrong.list.empty()) check_exchanges(wrong, problem, strategy);
  const OptimizerSpec& optimizer = problem.optimizer;
  using Limits = std::numeric_limits<float>;  // they are used as f32
  const auto fraction = [](double v) { return v >= 0 && v <= 1 && static_cast<float>(v) < 1; };
  const auto finite = [](double value) { return value >= 0 && value <= Limits::max(); };
  if (!fraction(optimizer.beta1) || !fraction(optimizer.beta2) ||
      !(optimizer.epsilon >= Limits::min()) || !finite(optimizer.epsilon) ||
      !finite(optimizer.weight_decay) || !finite(optimizer.clip)) {
    wrong("P108", "",
          "optimizer: expected beta1 and beta2 from 0 to below 1, epsilon over 0, weight decay and "
          "clip from 0, found {}, {}, {}, {}, {}",
          optimizer.beta1, optimizer.beta2, optimizer.epsilon, optimizer.weight_decay,
          optimizer.clip);
  }
  return wrong.list;
}

Strategy default_strategy(const Problem& problem) {
  Strategy strategy;
  const std::int64_t unit = problem.ranks() * problem.cluster.row_multiple;
  strategy.tiles.chunk_tokens = round_up(std::min<std::int64_t>(65536, problem.seq_len), unit);
  const std::int64_t local = strategy.tiles.chunk_tokens / problem.ranks();
  const std::int64_t words = problem.model.vocabulary;
  strategy.tiles.loss_vocabulary =
      std::min(words, std::max<std::int64_t>(32768, div_ceil(words, 64)));
  strategy.tiles.ffn_rows =
      std::min(local, std::max<std::int64_t>(4096, least_ffn_rows(problem, strategy)));
  strategy.tiles.loss_rows =
      std::min(local, std::max<std::int64_t>(1024, least_loss_rows(problem, strategy)));
  if (problem.model.kv_heads < problem.model.heads)
    strategy.tiles.backward_order = BackwardOrder::q_outer;
  if (has_nodes_of_several(problem.cluster)) strategy.zero_groups = ZeroGroups::hierarchical;
  return strategy;
}

std::int64_t least_ffn_rows(const Problem& problem, const Strategy& strategy) {
  const Geometry shape = geometry(problem, strategy);
  return div_ceil(shape.local_tokens() * shape.tensor_ranks, kTileLimit);
}

std::int64_t least_loss_rows(const Problem& problem, const Strategy& strategy) {
  const std::int64_t across = vocabulary_tiles(problem, strategy);
  return div_ceil(geometry(problem, strategy).local_tokens(),
                  std::max<std::int64_t>(1, kTileLimit / across));
}

double sequence_balance(const Problem& problem, const Strategy& strategy) {
  return problem.model.balance_loss * static_cast<double>(problem.model.experts) /
         static_cast<double>(strategy.mesh.replicas * strategy.micro_batches);
}

double sequence_z(const Problem& problem, const Strategy& strategy) {
  return problem.model.z_loss /
         static_cast<double>(strategy.mesh.replicas * strategy.micro_batches);
}

}  // namespace fpdt
