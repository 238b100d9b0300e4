// Greedily chooses which lever to pull next on a copy of `from`.
#include "fpdt/plan/ladder.h"

#include <algorithm>
#include <functional>
#include <optional>

#include <fmt/format.h>

#include "fpdt/base/units.h"

namespace fpdt {
namespace {

// A lever of the ladder, which takes one choice from `to`.
struct Pull {
  std::string words;
  std::function<void(Strategy& strategy, const Strategy& to)> take;
};

// `field` returns one choice of a strategy by reference.
template <class Field>
void add(std::vector<Pull>& pulls, const Strategy& from, const Strategy& to, Field field,
         const std::string& words) {
  if (field(from) == field(to)) return;
  pulls.push_back({words, [field](Strategy& strategy, const Strategy& target) {
                     field(strategy) = field(target);
                   }});
}

std::string flag(std::string_view name, bool on) {
  return fmt::format("{} {}", name, on ? "on" : "off");
}

// "name 0 -> whole": the rows of a tile before and after.
std::string tile(std::string_view name, std::int64_t from, std::int64_t to) {
  const auto rows = [](std::int64_t n) { return n == 0 ? "whole" : fmt::format("{}", n); };
  return fmt::format("{} {} -> {}", name, rows(from), rows(to));
}

void add_stored(std::vector<Pull>& pulls, const Problem& problem, const Strategy& from,
                const Strategy& to) {
  const StoredLayers stored = stored_layers(problem, to);
  if (stored_layers(problem, from) == stored) return;
  pulls.push_back(
      {fmt::format(
           "{} of {} layers store their attention output{}", stored.attention + stored.everything,
           problem.model.layers,
           stored.everything > 0 ? fmt::format(", {} of them everything", stored.everything) : ""),
       [&problem, stored](Strategy& strategy, const Strategy&) {
         strategy = with_stored(problem, strategy, stored);
       }});
}

void add_kept(std::vector<Pull>& pulls, const Strategy& from, const Strategy& to) {
  for (std::size_t k = 0; k < kTensorClasses; ++k) {
    const auto tensor = static_cast<TensorClass>(k);
    const double fraction = to.layer_classes.front().kept(tensor);
    if (from.layer_classes.front().kept(tensor) == fraction) continue;
    pulls.push_back({fmt::format("keep {:.0f} % of {} on the device", 100 * fraction, word(tensor)),
                     [tensor, fraction](Strategy& strategy, const Strategy&) {
                       strategy = with_kept(std::move(strategy), tensor, fraction);
                     }});
  }
}

// What ranks share, and types and homes of what they hold.
void add_shared(std::vector<Pull>& pulls, const Strategy& from, const Strategy& to) {
  if (from.offloads_states() != to.offloads_states() ||
      from.copies.optimizer_tile != to.copies.optimizer_tile) {
    pulls.push_back({fmt::format("states on the {}", to.offloads_states() ? "host" : "device"),
                     [](Strategy& strategy, const Strategy& target) {
                       strategy.offload_states(target.offloads_states());
                       strategy.copies.optimizer_tile = target.copies.optimizer_tile;
                     }});
  }
  if (from.mesh.replicas != to.mesh.replicas || from.micro_batches != to.micro_batches) {
    pulls.push_back(
        {fmt::format("{} replicas of {} sequences instead of {} of {}", to.mesh.replicas,
                     to.micro_batches, from.mesh.replicas, from.micro_batches),
         [](Strategy& strategy, const Strategy& target) {
           strategy.mesh.replicas = target.mesh.replicas;
           strategy.micro_batches = target.micro_batches;
         }});
  }
  if (from.mesh.ring != to.mesh.ring) {
    pulls.push_back({fmt::format("rings of {} -> {} ranks", from.mesh.ring, to.mesh.ring),
                     [](Strategy& strategy, const Strategy& target) {
                       strategy = with_ring(std::move(strategy), target.mesh.ring);
                     }});
  }
  if (from.storage != to.storage) {
    pulls.push_back(
        {fmt::format("storage {}", word(to.storage)),
         [](Strategy& strategy, const Strategy& target) { strategy.storage = target.storage; }});
  }
}

// The choices that differ between the two.
std::vector<Pull> differences(const Problem& problem, const Strategy& from, const Strategy& to) {
  std::vector<Pull> pulls;
  const Tiles &a = from.tiles, &b = to.tiles;
  add(
      pulls, from, to, [](auto& s) -> auto& { return s.tiles.chunk_tokens; },
      fmt::format("chunk_tokens {} -> {}", format_tokens(a.chunk_tokens),
                  format_tokens(b.chunk_tokens)));
  add(
      pulls, from, to, [](auto& s) -> auto& { return s.extent; },
      fmt::format("extent {}", word(to.extent)));
  add(
      pulls, from, to, [](auto& s) -> auto& { return s.tiles.ffn_rows; },
      tile("ffn_rows", a.ffn_rows, b.ffn_rows));
  add(
      pulls, from, to, [](auto& s) -> auto& { return s.tiles.loss_rows; },
      tile("loss_rows", a.loss_rows, b.loss_rows));
  add(
      pulls, from, to, [](auto& s) -> auto& { return s.tiles.loss_vocabulary; },
      tile("loss_vocabulary", a.loss_vocabulary, b.loss_vocabulary));
  add(
      pulls, from, to, [](auto& s) -> auto& { return s.tiles.backward_order; },
      fmt::format("backward_order {}", word(b.backward_order)));
  add(
      pulls, from, to, [](auto& s) -> auto& { return s.tiles.serpentine; },
      flag("serpentine", b.serpentine));
  add(
      pulls, from, to, [](auto& s) -> auto& { return s.tiles.long_tiles; },
      flag("long_tiles", b.long_tiles));
  add(
      pulls, from, to, [](auto& s) -> auto& { return s.copies.prefetch_depth; },
      fmt::format("prefetch_depth {} -> {}", from.copies.prefetch_depth, to.copies.prefetch_depth));
  add(
      pulls, from, to, [](auto& s) -> auto& { return s.copies.duplex; },
      flag("duplex", to.copies.duplex));
  add(
      pulls, from, to, [](auto& s) -> auto& { return s.copies.overlap_all_to_all; },
      flag("overlap_all_to_all", to.copies.overlap_all_to_all));
  add(
      pulls, from, to, [](auto& s) -> auto& { return s.keys; },
      fmt::format("keys {}", word(to.keys)));
  add(
      pulls, from, to, [](auto& s) -> auto& { return s.key_gradients; },
      fmt::format("key_gradients {}", word(to.key_gradients)));
  add(
      pulls, from, to, [](auto& s) -> auto& { return s.layout; },
      fmt::format("layout {}", word(to.layout)));
  add(
      pulls, from, to, [](auto& s) -> auto& { return s.zero; },
      fmt::format("ZeRO stage {} -> {}", from.zero, to.zero));
  add(
      pulls, from, to, [](auto& s) -> auto& { return s.segments; },
      fmt::format("segments of {} -> {} layers", from.checkpoint_every(), to.checkpoint_every()));
  add_stored(pulls, problem, from, to);
  add_kept(pulls, from, to);
  add_shared(pulls, from, to);
  return pulls;
}

}  // namespace

std::vector<Rung> ladder(const Problem& problem, const Strategy& from, const Strategy& to,
                         const OnProgress& progress) {
  const Machine machine(problem.cluster, RateEnd::typical);
  std::vector<Pull> left = differences(problem, from, to);
  std::vector<Rung> rungs{{"", from}};
  // Kept raw: tidying would drop choices that have no effect yet.
  Strategy raw = from;
  const auto all = static_cast<std::int64_t>(left.size());
  while (!left.empty()) {
    const std::int64_t done = all - static_cast<std::int64_t>(left.size());
    if (progress) progress({SearchProgress::Stage::rungs, done, all, 0});
    std::size_t best = left.size();
    bool best_fits = false;
    double least = 0;
    for (std::size_t i = 0; i < left.size(); ++i) {
      Strategy pulled = raw;
      left[i].take(pulled, to);
      pulled = tidied(problem, pulled);
      if (!check(problem, pulled).empty()) continue;
      const Usage need = usage(problem, pulled);
      const bool fit = within(problem, need);
      if (best_fits && !fit) continue;
      const double seconds = cost({pulled, need, step_nanoseconds(problem, pulled, machine)});
      if (best < left.size() && fit == best_fits && seconds >= least) continue;
      best = i;
      best_fits = fit;
      least = seconds;
    }
    // The remaining changes are sound only together: they are pulled at once.
    if (best == left.size()) break;
    left[best].take(raw, to);
    rungs.push_back({left[best].words, tidied(problem, raw)});
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(best));
  }
  if (!left.empty()) {
    std::string words;
    for (const Pull& pull : left) {
      words += fmt::format("{}{}", words.empty() ? "" : "; ", pull.words);
    }
    rungs.push_back({words, to});
  }
  return rungs;
}

}  // namespace fpdt
