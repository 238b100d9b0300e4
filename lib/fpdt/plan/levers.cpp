// The changes that each lever offers.
#include "fpdt/plan/levers.h"

#include <algorithm>

#include <fmt/format.h>

#include "fpdt/base/math.h"
#include "fpdt/base/units.h"
#include "fpdt/plan/fit.h"
#include "fpdt/plan/methods/method.h"
#include "fpdt/spec/attention_kernels.h"

namespace fpdt {
namespace {

using Changes = std::vector<Change>;

// Collects changes that are sound and not yet listed.
class Collector {
 public:
  Collector(const Problem& problem, const Strategy& from) : problem_(problem), from_(from) {}

  void add(const std::string& words, const Strategy& candidate) {
    const Strategy strategy = tidied(problem_, candidate);
    if (strategy == from_ || !check(problem_, strategy).empty()) return;
    // The rates are cuDNN's, so there is no time for tiles that it does not compute.
    if (fused_attention(problem_, from_) && !fused_attention(problem_, strategy)) return;
    const bool known = std::any_of(changes_.begin(), changes_.end(), [&](const Change& change) {
      return change.strategy == strategy;
    });
    if (!known) changes_.push_back({words, strategy});
  }
  Changes take() { return std::move(changes_); }

 private:
  const Problem& problem_;
  const Strategy& from_;
  Changes changes_;
};

// A tile keeps its rows. A tile of a whole chunk stays whole up to 8192 rows (feed-forward) or 1024
// rows (loss).
Changes chunk_changes(const Problem& problem, const Strategy& strategy) {
  Collector changes(problem, strategy);
  const Geometry shape = geometry(problem, strategy);
  for (const std::int64_t tokens :
       chunk_lengths(problem, shape.sequence_parallel, shape.ring, shape.hops)) {
    if (tokens == strategy.tiles.chunk_tokens) continue;
    Strategy changed = strategy;
    changed.tiles.chunk_tokens = tokens;
    const std::int64_t rows = tokens / shape.sequence_parallel;
    if (strategy.tiles.ffn_rows == 0 && rows > 8192) changed.tiles.ffn_rows = 8192;
    if (strategy.tiles.loss_rows == 0 && rows > 1024) changed.tiles.loss_rows = 1024;
    changes.add(fmt::format("chunk_tokens {} -> {}", format_tokens(strategy.tiles.chunk_tokens),
                            format_tokens(tokens)),
                changed);
  }
  return changes.take();
}

// Doubles and halves a tile; 0 stands for `whole`.
Lever tile_lever(const std::string& name, std::int64_t Tiles::*tile,
                 std::function<std::int64_t(const Problem&, const Strategy&)> whole) {
  return {name, [name, tile, whole](const Problem& problem, const Strategy& strategy) {
            Collector changes(problem, strategy);
            const std::int64_t all = whole(problem, strategy);
            const std::int64_t now = strategy.tiles.*tile > 0 ? strategy.tiles.*tile : all;
            for (const std::int64_t rows : {now / 2, 2 * now}) {
              if (rows < 1) continue;
              Strategy changed = strategy;
              changed.tiles.*tile = rows >= all ? 0 : rows;
              changes.add(fmt::format("{} {} -> {}", name, now, std::min(rows, all)), changed);
            }
            return changes.take();
          }};
}

template <class Group>
Lever flag_lever(const std::string& name, Group Strategy::*group, bool Group::*flag) {
  return {name, [name, group, flag](const Problem& problem, const Strategy& strategy) {
            Collector changes(problem, strategy);
            Strategy changed = strategy;
            changed.*group.*flag = !(strategy.*group.*flag);
            changes.add(fmt::format("{} {}", name, changed.*group.*flag ? "on" : "off"), changed);
            return changes.take();
          }};
}

template <class Word>
Lever word_lever(const std::string& name, Word Strategy::*choice) {
  return {name, [name, choice](const Problem& problem, const Strategy& strategy) {
            Collector changes(problem, strategy);
            for (std::size_t k = 0; k < words<Word>().size(); ++k) {
              Strategy changed = strategy;
              changed.*choice = static_cast<Word>(k);
              changes.add(
                  fmt::format("{} {} -> {}", name, word(strategy.*choice), word(changed.*choice)),
                  changed);
            }
            return changes.take();
          }};
}

Changes order_changes(const Problem& problem, const Strategy& strategy) {
  Collector changes(problem, strategy);
  Strategy changed = strategy;
  changed.tiles.backward_order = strategy.tiles.backward_order == BackwardOrder::kv_outer
                                     ? BackwardOrder::q_outer
                                     : BackwardOrder::kv_outer;
  changes.add(fmt::format("backward_order {}", word(changed.tiles.backward_order)), changed);
  return changes.take();
}

Changes depth_changes(const Problem& problem, const Strategy& strategy) {
  Collector changes(problem, strategy);
  for (const std::int64_t step : {-1, 1}) {
    Strategy changed = strategy;
    changed.copies.prefetch_depth += step;
    // Without prefetch the first delay of a copy stops the compute lane, which no simulation shows.
    if (changed.copies.prefetch_depth < 1 || changed.copies.prefetch_depth > 4) continue;
    changes.add(fmt::format("prefetch_depth {} -> {}", strategy.copies.prefetch_depth,
                            changed.copies.prefetch_depth),
                changed);
  }
  return changes.take();
}

Changes interval_changes(const Problem& problem, const Strategy& strategy) {
  Collector changes(problem, strategy);
  for (const std::int64_t every : checkpoint_intervals(problem)) {
    Strategy changed = strategy;
    if (every > 1) {
      // Segments have one class; their repeats may store attention outputs.
      const bool stored = stored_layers(problem, strategy).attention > 0;
      changed = with_stored(problem, strategy, {0, stored ? problem.model.layers : 0});
    }
    changed.segments = {every};
    changes.add(fmt::format("segments of {} -> {} layers", strategy.checkpoint_every(), every),
                changed);
  }
  return changes.take();
}

Changes offload_changes(const Problem& problem, const Strategy& strategy) {
  Collector changes(problem, strategy);
  Strategy changed = strategy;
  changed.offload_states(!strategy.offloads_states());
  changes.add(fmt::format("states on the {}", changed.offloads_states() ? "host" : "device"),
              changed);
  return changes.take();
}

Changes zero_changes(const Problem& problem, const Strategy& strategy) {
  Collector changes(problem, strategy);
  for (const std::int64_t stage : {3, 2, 1, 0}) {
    Strategy changed = strategy;
    changed.zero = stage;
    changes.add(fmt::format("ZeRO stage {} -> {}", strategy.zero, stage), changed);
  }
  return changes.take();
}

Changes ring_changes(const Problem& problem, const Strategy& strategy) {
  Collector changes(problem, strategy);
  for (const std::int64_t ring : rings(problem, geometry(problem, strategy).sequence_parallel)) {
    changes.add(fmt::format("rings of {} -> {} ranks", strategy.mesh.ring, ring),
                with_ring(strategy, ring));
  }
  return changes.take();
}

Changes data_parallel_changes(const Problem& problem, const Strategy& strategy) {
  Collector changes(problem, strategy);
  const std::int64_t now = geometry(problem, strategy).sequence_parallel;
  const std::int64_t batch = strategy.mesh.replicas * strategy.micro_batches;
  const auto add = [&](std::int64_t degree, std::int64_t ring) {
    if (batch % degree != 0) return;
    Strategy changed = strategy;
    changed.mesh.replicas = degree;
    changed.micro_batches = batch / degree;
    changed = with_ring(changed, ring);
    const std::int64_t unit = problem.ranks() / degree * problem.cluster.row_multiple;
    changed.tiles.chunk_tokens = round_up(strategy.tiles.chunk_tokens, unit);
    changes.add(fmt::format("sequence-parallel {} x data-parallel {} -> {} x {}", now,
                            strategy.mesh.replicas, problem.ranks() / degree, degree),
                changed);
  };
  for (const std::int64_t degree : data_parallel_degrees(problem)) add(degree, 1);
  if (now == 1 || strategy.mesh.ring < now) return changes.take();
  // Ranks that all share queries do so in any number.
  for (std::int64_t degree = 1; degree <= problem.ranks(); ++degree) {
    if (problem.ranks() % degree == 0) add(degree, problem.ranks() / degree);
  }
  return changes.take();
}

// Tries none, all, one more or less, and as many as fit. Layers that store everything may have
// stored only their attention output before.
Changes stored_changes(const Problem& problem, const Strategy& strategy,
                       std::int64_t StoredLayers::*which, std::string_view what) {
  Collector changes(problem, strategy);
  const StoredLayers now = stored_layers(problem, strategy);
  const std::int64_t layers = problem.model.layers;
  const bool all = which == &StoredLayers::everything;
  const std::int64_t most = all ? layers : layers - now.everything;
  const auto with = [&](std::int64_t n) {
    StoredLayers stored = now;
    stored.*which = n;
    stored.attention = std::min(stored.attention, layers - stored.everything);
    return with_stored(problem, strategy, stored);
  };
  std::int64_t fit = 0;
  for (std::int64_t high = most + 1; high - fit > 1;) {
    const std::int64_t middle = fit + (high - fit) / 2;
    (fits(problem, with(middle)) ? fit : high) = middle;
  }
  for (const std::int64_t n : {std::int64_t{0}, now.*which - 1, now.*which + 1, fit, most}) {
    if (n < 0 || n > most) continue;
    changes.add(fmt::format("{} in {} -> {} layers", what, now.*which, n), with(n));
  }
  return changes.take();
}

Changes kept_changes(const Problem& problem, const Strategy& strategy, TensorClass tensor) {
  Collector changes(problem, strategy);
  const std::int64_t chunks = geometry(problem, strategy).chunks;
  const double fraction = strategy.layer_classes.front().kept(tensor);
  const auto now = static_cast<std::int64_t>(fraction * static_cast<double>(chunks));
  const auto with = [&](std::int64_t n) {
    return tidied(problem, with_kept(strategy, tensor, fraction_of(n, chunks)));
  };
  if (with(chunks) == with(0)) return {};  // without effect here
  std::int64_t fit = 0;
  for (std::int64_t high = chunks + 1; high - fit > 1;) {
    const std::int64_t middle = fit + (high - fit) / 2;
    (fits(problem, with(middle)) ? fit : high) = middle;
  }
  for (const std::int64_t n : {std::int64_t{0}, now - 1, now + 1, fit, chunks}) {
    if (n < 0 || n > chunks) continue;
    changes.add(fmt::format("keep {} of {} chunks of {} on the device instead of {}", n, chunks,
                            word(tensor), now),
                with(n));
  }
  return changes.take();
}

}  // namespace

std::vector<Lever> levers() {
  std::vector<Lever> all;
  all.push_back({"chunk_tokens", chunk_changes});
  all.push_back({"recompute attention", [](const Problem& problem, const Strategy& strategy) {
                   return stored_changes(problem, strategy, &StoredLayers::attention,
                                         "attention output stored");
                 }});
  all.push_back({"recompute everything", [](const Problem& problem, const Strategy& strategy) {
                   return stored_changes(problem, strategy, &StoredLayers::everything,
                                         "everything stored");
                 }});
  all.push_back({"segments", interval_changes});
  all.push_back({"backward_order", order_changes});
  all.push_back(flag_lever("long_tiles", &Strategy::tiles, &Tiles::long_tiles));
  all.push_back(flag_lever("serpentine", &Strategy::tiles, &Tiles::serpentine));
  all.push_back({"prefetch_depth", depth_changes});
  all.push_back(flag_lever("duplex", &Strategy::copies, &Copies::duplex));
  all.push_back(flag_lever("overlap_all_to_all", &Strategy::copies, &Copies::overlap_all_to_all));
  all.push_back({"keep states", offload_changes});
  all.push_back({"zero", zero_changes});
  all.push_back({"mesh.ring", ring_changes});
  all.push_back(word_lever("keys", &Strategy::keys));
  all.push_back(word_lever("layout", &Strategy::layout));
  all.push_back({"replicas", data_parallel_changes});
  for (std::size_t k = 0; k < kTensorClasses; ++k) {
    const auto tensor = static_cast<TensorClass>(k);
    all.push_back({fmt::format("keep {}", word(tensor)),
                   [tensor](const Problem& problem, const Strategy& strategy) {
                     return kept_changes(problem, strategy, tensor);
                   }});
  }
  const auto rows = [](const Problem& problem, const Strategy& strategy) {
    return geometry(problem, strategy).local_rows(0);
  };
  all.push_back(tile_lever("ffn_rows", &Tiles::ffn_rows, rows));
  all.push_back(tile_lever("loss_rows", &Tiles::loss_rows, rows));
  all.push_back(
      tile_lever("loss_vocabulary", &Tiles::loss_vocabulary,
                 [](const Problem& problem, const Strategy&) { return problem.model.vocabulary; }));
  return all;
}

namespace {

std::string mesh_words(const Geometry& shape) {
  if (shape.ring == 1) {
    return fmt::format("mesh {} x {} (replicas x heads)", shape.data_parallel,
                       shape.sequence_parallel);
  }
  return fmt::format("keys {} over mesh {} x {} x {} (replicas x ring x heads)",
                     shape.hops > 1 ? "around rings" : "gathered", shape.data_parallel, shape.ring,
                     shape.head_ranks());
}

}  // namespace

std::string in_words(const Problem& problem, const Strategy& strategy) {
  const Geometry shape = geometry(problem, strategy);
  const std::string ranks = shape.sequence_parallel == 1
                                ? "on one rank"
                                : fmt::format("over {} ranks", shape.sequence_parallel);
  const Method* method = method_of(problem, strategy);
  const std::string who = method ? fmt::format("{} {}", method->title, ranks) : mesh_words(shape);
  std::string text =
      fmt::format("{}: {} of {} tokens", who,
                  shape.chunks == 1 ? "one chunk" : fmt::format("{} chunks", shape.chunks),
                  format_tokens(shape.chunk_rows));
  if (shape.data_parallel > 1) text += fmt::format(", {} replicas", shape.data_parallel);
  const StoredLayers stored = stored_layers(problem, strategy);
  const std::int64_t repeated = problem.model.layers - stored.everything - stored.attention;
  if (stored.everything > 0) text += fmt::format("; {} layers store everything", stored.everything);
  if (strategy.checkpoint_every() > 1) {
    text += fmt::format("; one layer in {} stores its input, {}", strategy.checkpoint_every(),
                        stored.attention > 0 ? "the others repeat forward"
                                             : "the others repeat forward and attention once more");
  } else {
    if (stored.attention > 0) {
      text += fmt::format("; {} layers store their attention output", stored.attention);
    }
    if (repeated > 0) {
      text += fmt::format("; {} layers repeat forward from their input", repeated);
    }
  }
  std::string kept;
  for (std::size_t k = 0; k < kTensorClasses; ++k) {
    const double fraction = strategy.layer_classes.front().keep[k];
    if (fraction == 0) continue;
    kept += fmt::format("{}{}", kept.empty() ? "" : ", ", word(static_cast<TensorClass>(k)));
    if (fraction < 1) kept += fmt::format(" ({:.0f} %)", 100 * fraction);
  }
  text += kept.empty() ? "; all chunks spilled to the host" : "; on the device: " + kept;
  if (strategy.tiles.long_tiles) text += "; one attention tile over all keys there";
  if (shape.zigzag) text += "; runs of every second chunk in reversed order";
  if (strategy.extent == Extent::whole) text += "; norms and products over all rows of a rank";
  text += fmt::format("; backward {}", strategy.tiles.backward_order == BackwardOrder::q_outer
                                           ? "query-outer"
                                           : "KV-outer");
  if (strategy.zero != Strategy{}.zero) text += fmt::format("; ZeRO stage {}", strategy.zero);
  if (strategy.offloads_states()) text += "; optimizer states on the host";
  return text;
}

}  // namespace fpdt
