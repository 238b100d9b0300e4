// Generates starts, then improves the best one lever at a time.
#include "fpdt/plan/search/climb.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "fpdt/plan/search/floor.h"
#include "fpdt/plan/search/policies.h"
#include "fpdt/spec/layer_places.h"

namespace fpdt {
namespace {

bool no_heavier(const Usage& a, const Usage& b) {
  return a.device <= b.device && a.host_node <= b.host_node;
}

class Climb {
 public:
  Climb(const Problem& problem, const Pins& pins, const SearchEffort& effort, Estimates& estimates)
      : problem_(problem), pins_(pins), effort_(effort), estimates_(estimates) {}

  // Takes starts by ascending time: the floor of all that a shape may store, then of what host and
  // devices together would allow, then with the share of waiting of the shape. Bytes and times of
  // shapes are what a search costs, so a start is looked at no closer than its turn asks.
  SearchResult from_starts() {
    make_starts();
    std::size_t done = 0;
    const auto next = [&] { return static_cast<double>(starts_.begin()->first.first); };
    while (!starts_.empty() && (!result_.best || next() < equal())) {
      report(effort_.progress, SearchProgress::Stage::starts, done, done + starts_.size());
      const Start start = std::move(starts_.extract(starts_.begin()).mapped());
      switch (start.stage) {
        case Stage::shape:
          add_sized(start);
          break;
        case Stage::sized:
          add_timed(start);
          break;
        case Stage::timed:
          add_segments(start);
          break;
        case Stage::policy:
          push({Stage::priced, start.strategy, start.skeleton, start.fastest});
          break;
        case Stage::priced:
          solve(start);
          break;
        case Stage::solved: {
          ++done;
          consider(start.strategy, usage(problem_, start.strategy));
          if (effort_.any) return finished();
        }
      }
    }
    if (!fitting_ && !hopeless_) take_lightest();
    return finished();
  }

  // Improves one strategy that fits.
  SearchResult from(const Strategy& strategy) {
    consider(strategy, usage(problem_, strategy));
    return finished();
  }

 private:
  // What is known of a start: only its shape; about how much of it fits; also how long the shape
  // takes, by simulation; its segments; these with their time; all.
  enum class Stage : std::uint8_t { shape, sized, timed, policy, priced, solved };
  struct Start {
    Stage stage = Stage::shape;
    Strategy strategy, skeleton;
    Strategy fastest;                // what may become of it
    std::optional<Policy> policy{};  // the first of a shape without room for all outputs
  };

  SearchResult finished() {
    if (result_.best && !effort_.any && promises(result_.best->nanoseconds)) {
      const auto start = static_cast<double>(result_.best->nanoseconds);
      improve();
      result_.pulled = start / static_cast<double>(result_.best->nanoseconds);
    }
    result_.front = pareto(problem_, std::move(seen_));
    return std::move(result_);
  }

  // Whether levers may make a step faster than the bound.
  bool promises(std::int64_t nanoseconds) const {
    return static_cast<double>(nanoseconds) < effort_.hopeless * static_cast<double>(effort_.bound);
  }

  std::int64_t floor_of(const Strategy& strategy) const {
    return compute_floor(problem_, strategy, estimates_.machine());
  }
  // The longest step that is about as fast as the fastest so far.
  double equal() const { return static_cast<double>(fastest_) * (1 + effort_.indifference); }
  // The longest step that is faster than the best by more than noise.
  double better() const {
    return static_cast<double>(result_.best->nanoseconds) * (1 - effort_.indifference);
  }

  void push(const Start& start) {
    std::int64_t time = floor_of(start.fastest);
    if (time >= effort_.bound) return;
    if (start.stage == Stage::timed || start.stage >= Stage::priced) {
      time = estimates_.nanoseconds(start.fastest);
      if (!promises(time)) {
        hopeless_ = true;
        return;
      }
    }
    starts_.emplace(std::pair(time, static_cast<std::int64_t>(pushed_++)), start);
  }

  // Adds what was made of a skeleton, if it fits.
  void add_solved(const Strategy& skeleton, const Strategy& made) {
    const Strategy strategy = canonical(problem_, made);
    if (!check(problem_, strategy).empty() || !stays(problem_, pins_, skeleton, strategy)) return;
    ++result_.candidates;
    if (!within(problem_, usage(problem_, strategy))) return;
    fitting_ = true;
    push({Stage::solved, strategy, skeleton, strategy});
  }

  void solve(const Start& start) {
    const Strategy stored = with_most_stored(problem_, start.strategy);
    add_solved(start.skeleton, stored);
    if (stored_layers(problem_, stored).attention == problem_.model.layers &&
        longest_segment(stored) == 1) {
      add_solved(start.skeleton, with_everything(problem_, stored));
    }
    // A method that keeps the attention of repeated layers on the device may let stored layers have
    // theirs on the host.
    if (pins_.method == nullptr || longest_segment(start.strategy) > 1) return;
    const Strategy none = with_kept(start.strategy, TensorClass::attention_output, 0);
    const Strategy host = with_most_stored(problem_, with_kept(none, TensorClass::lse, 0));
    if (allowed(problem_, pins_, host)) add_solved(host, host);
  }

  // Adds a shape with its fast policies, if they fit. True if one stores all attention outputs.
  bool add_policies(const Strategy& shape, const Strategy& skeleton,
                    const std::optional<Policy>& first) {
    bool all_stored = false;
    for (const Policy& policy : fast_policies(problem_, shape, estimates_.machine(), first)) {
      Strategy strategy = shape;
      strategy.segments = policy.segments;
      add_policy(strategy, policy.threshold, skeleton);
      all_stored |= policy.threshold == 0;
    }
    return all_stored;
  }

  // Adds a strategy with the most that it may store.
  void add_policy(const Strategy& strategy, std::int64_t least, const Strategy& skeleton) {
    const bool stores = least <= thresholds(problem_, strategy);
    // In some layers a threshold may be one chunk less than in all.
    const StoredFrom from{std::max<std::int64_t>(0, least - 1), problem_.model.layers};
    Strategy most =
        stores ? with_stored_from(problem_, strategy, from) : with_stored(problem_, strategy, {});
    const bool room = least == 0 && longest_segment(strategy) == 1;  // for everything
    if (room) {
      const std::int64_t everything = most_everything(problem_, strategy);
      most = with_stored(problem_, strategy, {everything, problem_.model.layers - everything});
    }
    if (stores || may_fit(problem_, most)) push({Stage::policy, strategy, skeleton, most});
  }

  Strategy with_all_outputs(const Strategy& shape) const {
    return with_stored_from(problem_, shape, {0, problem_.model.layers});
  }
  bool is_tight(const Strategy& shape) const {
    return !within(problem_, usage(problem_, with_all_outputs(shape)));
  }

  // Adds a shape with its fastest policy by the formula. Where there is none, only all policies
  // tell.
  void add_sized(Start start) {
    start.stage = Stage::sized;
    if (is_tight(start.strategy)) {
      const Strategy light = roomy(problem_, start.strategy);
      start.fastest = with_all_outputs(start.strategy);
      start.policy = first_policy(problem_, light, estimates_.machine());
      if (!start.policy && !may_fit(problem_, start.fastest)) return;
      if (start.policy) start.fastest = with_policy(problem_, light, *start.policy);
    }
    push(start);
  }

  // Adds a shape with its time, if that policy may fit. Where bytes say that it needs too much, all
  // policies tell.
  void add_timed(Start start) {
    if (start.policy && !may_fit(problem_, start.fastest)) {
      add_segments(start);
      return;
    }
    start.stage = Stage::timed;
    push(start);
  }

  // Adds a shape with segments: longer ones leave more room for attention outputs, until all are
  // stored, and repeat more. Queries are stored only where all outputs are, and made again only
  // where outputs and queries together need more than the host.
  void add_segments(const Start& start) {
    const Strategy light = roomy(problem_, start.strategy);
    const bool tight = is_tight(start.strategy);
    if (tight && stays(problem_, pins_, start.skeleton, light)) {
      const bool stores = add_policies(light, start.skeleton, start.policy);
      if (!stores && !may_fit(problem_, with_all_outputs(start.strategy))) return;
    }
    if (tight && light == start.strategy) return;
    add_policies(start.strategy, start.skeleton,
                 first_policy(problem_, start.strategy, estimates_.machine()));
  }

  void push_shapes(const Strategy& skeleton) {
    if (!check(problem_, skeleton).empty()) return;
    for (const Strategy& shape : {resident_keys(problem_, skeleton), skeleton}) {
      // It is fastest if it repeats no forward.
      push({Stage::shape, shape, skeleton,
            with_stored(problem_, shape, {problem_.model.layers, 0})});
    }
  }

  void make_starts() {
    // Streams cost host memory and copies. Where devices have room, a lever may still choose them.
    const std::int64_t resident = mul(6, parameter_count(problem_.model)) / problem_.ranks();
    const bool heavy = resident > problem_.device_budget.value / 2;
    for (const Split& split : splits(problem_, pins_)) {
      for (const std::int64_t tokens : lengths_of(problem_, pins_, split)) {
        for (const BackwardOrder order : {BackwardOrder::q_outer, BackwardOrder::kv_outer}) {
          for (const auto& homes : kStateHomes) {
            const bool streams = homes[static_cast<std::size_t>(StateClass::gradients)] == 0;
            if (streams && !heavy) continue;
            Strategy skeleton = skeleton_of(problem_, split, tokens);
            skeleton.tiles.backward_order = order;
            skeleton.keep = homes;
            skeleton = entered(problem_, pins_, skeleton);
            push_shapes(skeleton);
            // Slices cost gathers and sums. Where devices have room, a lever may still choose them.
            if (!heavy) continue;
            Strategy in_slices = sliced(problem_, skeleton, ExpertLoop::slices);
            if (in_slices == skeleton) continue;
            push_shapes(in_slices);
            if (in_slices.tiles.slices_outside()) push_shapes(in_one_tile(problem_, in_slices));
          }
        }
      }
    }
  }

  void take_lightest() {
    const auto light = any_fit(problem_, pins_, [&](const Strategy& strategy) {
      const bool faster = floor_of(with_stored(problem_, strategy, {})) < effort_.bound;
      if (faster) ++result_.candidates;
      return faster;
    });
    if (!light) return;
    const Strategy strategy = canonical(problem_, *light);
    if (!check(problem_, strategy).empty() || floor_of(strategy) >= effort_.bound) return;
    const Usage need = usage(problem_, strategy);
    if (within(problem_, need)) consider(strategy, need);
  }

  bool seen(const Strategy& strategy) const {
    return std::any_of(seen_.begin(), seen_.end(),
                       [&](const Candidate& one) { return one.strategy == strategy; });
  }

  // Times a strategy that fits; true when it becomes the best.
  bool consider(const Strategy& strategy, const Usage& need) {
    if (seen(strategy)) return false;
    seen_.push_back({strategy, need, estimates_.nanoseconds(strategy)});
    const Candidate& now = seen_.back();
    fastest_ = std::min(fastest_, now.nanoseconds);
    const bool gains = !result_.best || static_cast<double>(now.nanoseconds) < better();
    // About as fast in less memory is better, but not a reason to keep searching. Longer segments
    // nearly always are, for three times the blocks; memory that is left is no reason for them.
    if (gains || (static_cast<double>(now.nanoseconds) <= equal() &&
                  longest_segment(strategy) <= longest_segment(result_.best->strategy) &&
                  no_heavier(need, result_.best->usage) && need != result_.best->usage)) {
      result_.best = now;
    }
    return gains;
  }

  // Strategies like one that needs too much of one memory, with some of it on the other, or with
  // shorter tiles.
  std::vector<Strategy> relieved(const Strategy& strategy) const {
    if (usage(problem_, strategy).device <= problem_.device_budget) {
      return {with_host_relieved(problem_, strategy), with_inputs_relieved(problem_, strategy)};
    }
    Strategy shorter = strategy;
    std::int64_t& rows = shorter.tiles.ffn_rows;
    if (rows == 0) rows = geometry(problem_, strategy).product_rows(0);
    rows = std::max(rows / 4, least_ffn_rows(problem_, strategy));
    return {with_device_relieved(problem_, strategy), shorter};
  }

  bool try_change(const Strategy& strategy) {
    if (!allowed(problem_, pins_, strategy)) return false;
    if (static_cast<double>(floor_of(strategy)) >= better()) return false;
    ++result_.candidates;
    const Usage need = usage(problem_, strategy);
    if (within(problem_, need)) return consider(strategy, need);
    if (static_cast<double>(estimates_.nanoseconds(strategy)) >= better()) return false;
    bool gained = false;
    for (const Strategy& other : relieved(strategy)) {
      const Strategy light = canonical(problem_, other);
      if (!check(problem_, light).empty() || !allowed(problem_, pins_, light)) continue;
      const Usage less = usage(problem_, light);
      if (within(problem_, less) && consider(light, less)) gained = true;
    }
    return gained;
  }

  void improve() {
    const std::vector<Lever>& all = effort_.levers;
    std::size_t unchanged = 0;
    for (std::size_t i = 0; unchanged < all.size(); i = (i + 1) % all.size()) {
      report(effort_.progress, SearchProgress::Stage::levers, unchanged, all.size());
      bool gained = false;
      const Strategy from = result_.best->strategy;
      for (const Change& change : all[i].changes(problem_, from)) {
        if (try_change(change.strategy)) gained = true;
      }
      unchanged = gained ? 0 : unchanged + 1;
    }
  }

  const Problem& problem_;
  const Pins& pins_;
  const SearchEffort& effort_;
  Estimates& estimates_;
  std::map<std::pair<std::int64_t, std::int64_t>, Start> starts_;  // by time and number
  std::size_t pushed_ = 0;
  bool fitting_ = false;   // a start that fits was found
  bool hopeless_ = false;  // one that may fit is far slower than the bound
  std::vector<Candidate> seen_;
  std::int64_t fastest_ = std::numeric_limits<std::int64_t>::max();
  SearchResult result_;
};

}  // namespace

std::vector<Candidate> pareto(const Problem& problem, std::vector<Candidate> candidates,
                              double equal) {
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return cost(a) < cost(b); });
  const auto about = [equal](Bytes used, Bytes budget) {
    return used + Bytes{static_cast<std::int64_t>(equal * static_cast<double>(budget.value))};
  };
  std::vector<Candidate> kept;
  for (Candidate& candidate : candidates) {
    const bool beaten = std::any_of(kept.begin(), kept.end(), [&](const Candidate& other) {
      return other.usage.device <= about(candidate.usage.device, problem.device_budget) &&
             other.usage.host_node <= about(candidate.usage.host_node, problem.host_budget);
    });
    if (!beaten) kept.push_back(std::move(candidate));
  }
  return kept;
}

SearchResult climb(const Problem& problem, const Pins& pins, const SearchEffort& effort,
                   Estimates& estimates) {
  return Climb(problem, pins, effort, estimates).from_starts();
}

SearchResult climb_from(const Strategy& strategy, const Problem& problem, const Pins& pins,
                        const SearchEffort& effort, Estimates& estimates) {
  return Climb(problem, pins, effort, estimates).from(strategy);
}

}  // namespace fpdt
