// The values that choices may take, and the words of those that are more than a member.
#include "fpdt/spec/choice_values.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fpdt/base/largest.h"
#include "fpdt/base/math.h"
#include "fpdt/spec/layer_places.h"

namespace fpdt {
namespace {

// The strategy with one member changed.
template <class Change>
Strategy with(Strategy strategy, const Change& change) {
  change(strategy);
  return strategy;
}

// Strategies with none, all, one more or less than `now`, and as many as fit, at most `most`.
template <class With>
Strategies amounts(std::int64_t now, std::int64_t most, const Fits& fits, const With& with) {
  const std::int64_t fit =
      largest_that_fits(most, now, [&](std::int64_t n) { return fits(with(n)); });
  Strategies values;
  for (const std::int64_t n : {std::int64_t{0}, now - 1, now + 1, fit, most}) {
    if (n >= 0 && n <= most) values.push_back(with(n));
  }
  return values;
}

}  // namespace

// A tile keeps its rows. A tile of a whole chunk stays whole up to 8192 rows (feed-forward) or 1024
// rows (loss).
Strategies other_chunks(const Problem& problem, const Strategy& strategy, const Fits&) {
  Strategies values;
  const Geometry shape = geometry(problem, strategy);
  for (const std::int64_t tokens :
       chunk_lengths(problem, shape.sequence_parallel, shape.ring, shape.hops)) {
    if (tokens == strategy.tiles.chunk_tokens) continue;
    Tiles& tiles = values.emplace_back(strategy).tiles;
    tiles.chunk_tokens = tokens;
    const std::int64_t rows = tokens / shape.sequence_parallel;
    const std::int64_t of_products = rows * shape.tensor_ranks, now = shape.product_rows(0);
    if (tiles.expert_slices > 1 && tiles.ffn_rows == 0) {
      // A longer chunk has several tiles like this one, and gathers as much.
      tiles.ffn_rows = of_products > now ? now : 0;
      tiles.expert_loop = ExpertLoop::slices;
    } else if (tiles.ffn_rows == 0 && of_products > 8192) {
      tiles.ffn_rows = 8192;
    }
    if (tiles.loss_rows == 0 && rows > 1024) tiles.loss_rows = 1024;
  }
  return values;
}

// Twice as many rows may gain nothing where all of them do.
Strategies other_tiles(const Strategy& strategy, std::int64_t Tiles::*tile, std::int64_t whole) {
  Strategies values;
  const auto add = [&](std::int64_t rows) {
    values.push_back(
        with(strategy, [&](Strategy& s) { s.tiles.*tile = rows >= whole ? 0 : rows; }));
  };
  const std::int64_t now = strategy.tiles.*tile > 0 ? strategy.tiles.*tile : whole;
  if (now > 1) add(now / 2);
  add(2 * now);
  if (2 * now < whole) add(whole);
  return values;
}

// Half and twice as many.
Strategies other_slices(const Problem& problem, const Strategy& strategy, const Fits&) {
  constexpr std::int64_t kMost = 8;
  const ModelSpec& model = problem.model;
  Strategies values;
  const std::int64_t now = strategy.tiles.expert_slices;
  for (const std::int64_t slices : {now / 2, now * 2}) {
    if (slices < 1 || slices > kMost || !model.has_experts() || model.experts % slices != 0)
      continue;
    values.push_back(with(strategy, [&](Strategy& s) { s.tiles.expert_slices = slices; }));
  }
  return values;
}

Strategies other_depths(const Problem&, const Strategy& strategy, const Fits&) {
  Strategies values;
  for (const std::int64_t step : {-1, 1}) {
    const std::int64_t depth = strategy.copies.prefetch_depth + step;
    // Without prefetch the first delay of a copy stops the compute lane, which no simulation shows.
    if (depth < 1 || depth > 4) continue;
    values.push_back(with(strategy, [&](Strategy& s) { s.copies.prefetch_depth = depth; }));
  }
  return values;
}

// One layer each; and as many segments, one more or one fewer, as what is repeated now needs them.
// Where attention is repeated, with as much of it stored as then fits.
Strategies other_segments(const Problem& problem, const Strategy& strategy, const Fits& fits) {
  Strategies values;
  const StoredLayers now = stored_layers(problem, strategy);
  const std::int64_t repeated = strategy.layer_classes.back().repeated(0);
  const bool repeats = std::any_of(strategy.layer_classes.begin(), strategy.layer_classes.end(),
                                   [](const LayerClass& one) { return one.repeated(1) > 0; });
  const std::int64_t layers = problem.model.layers;
  const OutputWeights outputs = output_weights(problem, repeated_share(problem, strategy));
  const std::int64_t now_count = std::ssize(segment_lengths(strategy, layers));
  for (const std::int64_t count : {layers, now_count + 1, now_count, now_count - 1}) {
    if (count < 1 || count > layers) continue;
    Strategy made = strategy;
    made.segments = least_segments(layers, count, outputs).lengths;
    if (made.segments == strategy.segments) continue;
    // Layers of segments cannot store everything.
    if (longest_segment(made) > 1 && now.everything > 0) {
      made = with_stored(problem, made, {0, now.everything + now.attention});
    }
    values.push_back(repeats ? with_least_repeated(problem, made, fits, repeated) : made);
  }
  return values;
}

Strategies other_home_of(StateClass one, const Strategy& strategy) {
  return {with(strategy, [&](Strategy& s) { s.offload(one, !s.offloads(one)); })};
}

namespace {

// The other value of a choice that leaves a tensor class without memory or gives it some.
template <class Value>
Strategies other_memory(const Strategy& strategy, Value Strategy::*member, Value none, Value some,
                        TensorClass tensor) {
  Strategy other = strategy;
  other.*member = strategy.*member == none ? some : none;
  if (other.*member == none) return {other};
  return {with_kept(other, tensor, 1), with_kept(other, tensor, 0)};
}

}  // namespace

Strategies other_layer_gradients(const Problem&, const Strategy& strategy, const Fits&) {
  return other_memory(strategy, &Strategy::layer_gradients, LayerGradients::in_inputs,
                      LayerGradients::apart, TensorClass::layer_gradient);
}

Strategies other_queries(const Problem&, const Strategy& strategy, const Fits&) {
  return other_memory(strategy, &Strategy::queries, Queries::again, Queries::stored,
                      TensorClass::q);
}

Strategies other_stages(const Problem&, const Strategy& strategy, const Fits&) {
  Strategies values;
  for (const std::int64_t stage : {3, 2, 1, 0}) {
    values.push_back(with(strategy, [&](Strategy& s) {
      s.zero = stage;
      if (stage < 3 && s.zero_groups == ZeroGroups::hybrid) {
        s.zero_groups = ZeroGroups::hierarchical;  // the same below stage 3
      }
    }));
  }
  return values;
}

Strategies other_rings(const Problem& problem, const Strategy& strategy, const Fits&) {
  Strategies values;
  const std::int64_t among = geometry(problem, strategy).sequence_parallel;
  for (const std::int64_t ring : rings(problem, among)) {
    if (among / ring % strategy.mesh.tensor == 0) values.push_back(with_ring(strategy, ring));
  }
  return values;
}

// Of the ranks that share heads or products.
Strategies other_tensors(const Problem& problem, const Strategy& strategy, const Fits&) {
  Strategies values;
  const Geometry shape = geometry(problem, strategy);
  const std::int64_t ranks = shape.head_ranks() * shape.tensor_ranks;
  for (std::int64_t tensor = 1; tensor <= ranks; ++tensor) {
    if (ranks % tensor != 0 || !divides_layers(problem.model, tensor)) continue;
    values.push_back(with(strategy, [&](Strategy& s) { s.mesh.tensor = tensor; }));
  }
  return values;
}

Strategies other_replicas(const Problem& problem, const Strategy& strategy, const Fits&) {
  Strategies values;
  const std::int64_t now = geometry(problem, strategy).sequence_parallel;
  const std::int64_t batch = strategy.mesh.replicas * strategy.micro_batches;
  const bool all_share_products = now > 1 && strategy.mesh.tensor == now;
  const auto add = [&](std::int64_t degree, std::int64_t ring) {
    const std::int64_t share = problem.ranks() / degree / ring;  // the heads
    const std::int64_t tensor = all_share_products ? share : strategy.mesh.tensor;
    if (batch % degree != 0 || share % tensor != 0) return;
    Strategy changed = strategy;
    changed.mesh.replicas = degree;
    changed.mesh.tensor = tensor;
    changed.micro_batches = batch / degree;
    changed = with_ring(changed, ring);
    const std::int64_t unit = problem.ranks() / degree * problem.cluster.row_multiple;
    changed.tiles.chunk_tokens = round_up(strategy.tiles.chunk_tokens, unit);
    values.push_back(std::move(changed));
  };
  for (const std::int64_t degree : data_parallel_degrees(problem)) add(degree, 1);
  if (now == 1 || strategy.mesh.ring < now) return values;
  // Ranks that all share queries do so in any number.
  for (std::int64_t degree = 1; degree <= problem.ranks(); ++degree) {
    if (problem.ranks() % degree == 0) add(degree, problem.ranks() / degree);
  }
  return values;
}

// Layers that store everything may have stored only their attention output before.
Strategies other_stored(const Problem& problem, const Strategy& strategy, const Fits& fits,
                        std::int64_t StoredLayers::*which) {
  const StoredLayers now = stored_layers(problem, strategy);
  const std::int64_t layers = problem.model.layers;
  const bool all = which == &StoredLayers::everything;
  return amounts(now.*which, all ? layers : layers - now.everything, fits, [&](std::int64_t n) {
    StoredLayers stored = now;
    stored.*which = n;
    stored.attention = std::min(stored.attention, layers - stored.everything);
    return with_stored(problem, strategy, stored);
  });
}

Strategies other_kept(const Problem& problem, const Strategy& strategy, const Fits& fits,
                      TensorClass tensor) {
  const Geometry::Parts parts =
      geometry(problem, strategy).parts(strategy.layer_classes.front(), tensor);
  const auto with = [&](std::int64_t n) {
    return canonical(problem, with_kept(strategy, tensor, fraction_of(n, parts.all)));
  };
  if (with(parts.all) == with(0)) return {};  // without effect here
  return amounts(parts.kept, parts.all, fits, with);
}

std::int64_t most_repeated(const Strategy& strategy) {
  std::int64_t most = 0;
  for (const LayerClass& one : strategy.layer_classes) most = std::max(most, one.repeated(0));
  return most;
}

// Other thresholds, and the one with which as much as then fits is stored.
Strategies other_first_chunks(const Problem& problem, const Strategy& strategy, const Fits& fits) {
  const std::int64_t layers = problem.model.layers;
  const std::int64_t chunks = geometry(problem, strategy).chunks;
  const std::int64_t now = most_repeated(strategy);
  const std::int64_t most = longest_segment(strategy) > 1 ? chunks : chunks - 1;
  const bool all = stored_layers(problem, strategy).attention == layers;
  std::vector<Strategy> values;
  for (const std::int64_t first : {std::int64_t{0}, now - 1, now + 1, chunks / 4, chunks / 2}) {
    if (first < 0 || first > most) continue;
    values.push_back(all ? with_stored_from(problem, strategy, {first, layers})
                         : with_first_stored(strategy, first));
  }
  if (all && now > 0) values.push_back(with_least_repeated(problem, strategy, fits, now));
  return values;
}

void leave_ranks(Problem& problem, std::int64_t divisor) {
  if (divisor == 1) return;
  problem.cluster.devices_per_node = problem.ranks() / divisor;
  problem.cluster.nodes = 1;
}

// Nodes have all parameters at stage 3 alone.
Strategies other_zero_groups(const Problem& problem, const Strategy& strategy, const Fits&) {
  Strategies values;
  if (!has_nodes_of_several(problem.cluster)) return values;
  for (const ZeroGroups groups : {ZeroGroups::flat, ZeroGroups::hierarchical, ZeroGroups::hybrid}) {
    if (groups == strategy.zero_groups) continue;
    if (groups == ZeroGroups::hybrid && strategy.zero < 3) continue;
    values.push_back(strategy);
    values.back().zero_groups = groups;
  }
  return values;
}

std::string words_of_zero_groups(const Problem&, const Strategy& strategy, const Geometry&) {
  ZeroGroups groups = strategy.zero_groups;
  if (groups == ZeroGroups::hybrid && strategy.zero < 3) groups = ZeroGroups::hierarchical;
  return groups == ZeroGroups::flat ? "" : fmt::format("{} ZeRO", word(groups));
}

std::string says_home_of(StateClass one, const Strategy& to) {
  return fmt::format("{} on the {}", word(one), to.offloads(one) ? "host" : "device");
}

std::string words_of_homes(const Problem&, const Strategy& strategy, const Geometry&) {
  std::vector<std::string_view> there;
  if (strategy.offloads(StateClass::parameters)) there.push_back("parameters");
  if (strategy.offloads(StateClass::gradients)) there.push_back("gradients");
  if (strategy.offloads(StateClass::states)) there.push_back("optimizer states");
  if (there.empty()) return "";
  const std::string_view last = there.back();
  there.pop_back();
  return fmt::format("{}{}{} on the host", fmt::join(there, ", "), there.empty() ? "" : " and ",
                     last);
}

std::string says_segments(const Problem& problem, const Strategy& from, const Strategy& to) {
  const auto count = [&](const Strategy& strategy) {
    return segment_lengths(strategy, problem.model.layers).size();
  };
  if (count(from) == count(to)) {
    return fmt::format("segments of {} -> {} layers", fmt::join(from.segments, ", "),
                       fmt::join(to.segments, ", "));
  }
  return fmt::format("inputs stored in {} -> {} layers", count(from), count(to));
}

std::string says_replicas(const Problem&, const Strategy& from, const Strategy& to) {
  return fmt::format("replicas x micro-batches {} x {} -> {} x {}", from.mesh.replicas,
                     from.micro_batches, to.mesh.replicas, to.micro_batches);
}

std::function<void(Problem&, Strategy&)> without_side(std::int64_t Mesh::*side) {
  return [side](Problem& problem, Strategy& strategy) {
    leave_ranks(problem, strategy.mesh.*side);
    strategy.mesh.*side = 1;
  };
}

std::string unused_zero(const Problem& problem, const Strategy& strategy, const LayerClass&,
                        const Geometry&) {
  return strategy.zero == Strategy{}.zero || problem.ranks() > 1 ? "" : "one rank shares nothing";
}

std::string unused_zero_groups(const Problem& problem, const Strategy& strategy, const LayerClass&,
                               const Geometry&) {
  if (strategy.zero_groups == ZeroGroups::flat) return "";
  if (!has_nodes_of_several(problem.cluster)) return "it needs several nodes of several devices";
  const bool whole = strategy.zero_groups == ZeroGroups::hybrid && strategy.zero < 3;
  return whole ? "each node has all parameters below ZeRO stage 3, as with hierarchical" : "";
}

void with_plain_zero_groups(const Problem& problem, Strategy& strategy) {
  strategy.zero_groups =
      has_nodes_of_several(problem.cluster) ? ZeroGroups::hierarchical : ZeroGroups::flat;
}

std::string unused_long_tiles(const Problem&, const Strategy& strategy, const LayerClass&,
                              const Geometry& shape) {
  if (!strategy.tiles.long_tiles) return "";
  if (shape.hops > 1) return "keys go around a ring";
  const bool keeps =
      std::any_of(strategy.layer_classes.begin(), strategy.layer_classes.end(),
                  [](const LayerClass& one) { return one.kept(TensorClass::kv) > 0; });
  return keeps ? "" : "no layer class keeps kv on the device";
}

std::string words_of_stored(const Problem& problem, const Strategy& strategy, const Geometry&) {
  std::string text;
  const auto add = [&](std::int64_t layers, std::string_view one, std::string_view many) {
    if (layers == 0) return;
    text += fmt::format("{}{} {}", text.empty() ? "" : "; ", layers, layers == 1 ? one : many);
  };
  const StoredLayers stored = stored_layers(problem, strategy);
  add(stored.everything, "layer stores everything", "layers store everything");
  const std::int64_t storing = layers_storing_attention(problem, strategy);
  add(storing, "layer stores its attention output", "layers store their attention output");
  add(stored.attention - storing, "layer repeats all its attention once",
      "layers repeat all their attention once");
  add(problem.model.layers - stored.everything - stored.attention,
      "layer repeats forward from its input", "layers repeat forward from their input");
  const std::vector<std::int64_t> lengths = segment_lengths(strategy, problem.model.layers);
  const auto [least, most] = std::minmax_element(lengths.begin(), lengths.end());
  if (*most == 1) return text;
  if (*least == *most) return fmt::format("{}; one layer in {} stores its input", text, *most);
  return fmt::format("{}; {} of {} layers store their input", text, lengths.size(),
                     problem.model.layers);
}

std::string words_of_kept(const Problem& problem, const Strategy& strategy, const Geometry&) {
  std::string kept;
  for (std::size_t k = 0; k < kTensorClasses; ++k) {
    const auto tensor = static_cast<TensorClass>(k);
    double least = 1, most = 0;
    for (const LayerClass& one : strategy.layer_classes) {
      if (!why_unused(problem.model, strategy, one, tensor).empty()) continue;
      least = std::min(least, one.keep[k]);
      most = std::max(most, one.keep[k]);
    }
    if (most == 0) continue;
    kept += fmt::format("{}{}", kept.empty() ? "" : ", ", word(tensor));
    const std::string low = fmt::format("{:.0f}", 100 * least),
                      high = fmt::format("{:.0f}", 100 * most);
    if (least < 1) kept += fmt::format(" ({}{} %)", low == high ? "" : low + " to ", high);
  }
  return kept.empty() ? "all chunks spilled to the host" : "on the device: " + kept;
}

std::string words_of_first_chunks(const Problem&, const Strategy& strategy, const Geometry& shape) {
  std::int64_t least = shape.chunks;
  for (const LayerClass& one : strategy.layer_classes) {
    if (one.recompute != Recompute::from_input) least = std::min(least, one.first_stored_chunk);
  }
  const std::int64_t most = most_repeated(strategy);
  if (most == 0 || most == shape.chunks) return "";
  const std::string from = least < most ? fmt::format("{} to ", least) : "";
  return fmt::format("attention of the first {} is repeated",
                     most == 1 && from.empty() ? "chunk" : fmt::format("{}{} chunks", from, most));
}

// Layers may differ in it by one.
std::string says_first_chunks(const Problem& problem, const Strategy& from, const Strategy& to) {
  const auto mean = [&](const Strategy& strategy) {
    std::int64_t chunks = 0, layers = 0;
    for (const LayerPlace& at : layer_places(strategy, problem.model.layers)) {
      const LayerClass& one = strategy.layer_classes[at.layer_class];
      if (one.recompute == Recompute::from_input) continue;
      chunks += one.first_stored_chunk;
      ++layers;
    }
    const double value = layers > 0 ? static_cast<double>(chunks) / static_cast<double>(layers)
                                    : static_cast<double>(most_repeated(strategy));
    return fmt::format("{:.4g}", value);
  };
  const std::string before = mean(from), after = mean(to);
  const bool whole = (before + after).find('.') == std::string::npos;
  return fmt::format("first_stored_chunk {} -> {}{}", before, after, whole ? "" : " on average");
}

std::string change_of_stored(const Problem& problem, const Strategy& from, const Strategy& to) {
  std::string text;
  const auto add = [&](std::string_view what, std::int64_t before, std::int64_t after) {
    if (before == after) return;
    text += fmt::format("{}{} stored in {} -> {} layers", text.empty() ? "" : ", ", what, before,
                        after);
  };
  const StoredLayers before = stored_layers(problem, from), after = stored_layers(problem, to);
  add("everything", before.everything, after.everything);
  add("attention output", before.attention, after.attention);
  return text.empty() ? says_first_chunks(problem, from, to) : text;
}

std::string change_of_kept(const Problem& problem, const Strategy& to, TensorClass tensor) {
  const auto [parts, kept] = geometry(problem, to).parts(to.layer_classes.front(), tensor);
  if (kept == parts) return fmt::format("keep all of {} on the device", word(tensor));
  if (kept == 0) return fmt::format("keep no {} on the device", word(tensor));
  return fmt::format("keep {} of {} chunks of {} on the device", kept, parts, word(tensor));
}

}  // namespace fpdt
