// Generates starting points, then improves one lever at a time.
#include "fpdt/plan/search/search.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "fpdt/base/assert.h"
#include "fpdt/plan/lowering/lower_ops.h"
#include "fpdt/plan/place.h"
#include "fpdt/plan/search/estimates.h"
#include "fpdt/plan/search/floor.h"
#include "fpdt/schedule/depend.h"
#include "fpdt/spec/layer_places.h"

namespace fpdt {
namespace {

bool no_heavier(const Usage& a, const Usage& b) {
  return a.device <= b.device && a.host_node <= b.host_node;
}

// The share of a budget that is not used.
double left(Bytes used, Bytes budget) {
  return 1 - static_cast<double>(used.value) /
                 static_cast<double>(std::max<std::int64_t>(budget.value, 1));
}

// The strategy with as much on the host as its budget allows, and the rest on the device. A chunk
// of attention output or layer input of all layers is large; chunks of lse, and of the gradient of
// one layer, fill what they leave.
Strategy divided(const Problem& problem, Strategy strategy) {
  static constexpr std::initializer_list<TensorClass> kFine = {TensorClass::layer_gradient,
                                                               TensorClass::lse};
  const auto with = [&](std::initializer_list<TensorClass> tensors, double fraction) {
    for (const TensorClass tensor : tensors) strategy = with_kept(strategy, tensor, fraction);
    return usage(problem, strategy).host_node;
  };
  with({TensorClass::attention_output, TensorClass::layer_input}, 0);
  const Bytes without = with(kFine, 1);
  Problem roomier = problem;
  roomier.host_budget += with(kFine, 0) - without;
  return with_host_relieved(problem, with_host_relieved(roomier, strategy), kFine);
}

Bytes part(Bytes whole, double share) {
  return Bytes{static_cast<std::int64_t>(share * static_cast<double>(whole.value))};
}

// The candidates that no other beats in cost, device and host memory at once, ascending by cost.
// Memory that is less by under `equal` of its budget counts as equal.
std::vector<Candidate> pareto(const Problem& problem, std::vector<Candidate> candidates,
                              double equal = 0) {
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return cost(a) < cost(b); });
  const auto about = [equal](Bytes used, Bytes budget) { return used + part(budget, equal); };
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

class Search {
 public:
  Search(const Problem& problem, const Pins& pins, const SearchEffort& effort, Estimates& estimates)
      : problem_(problem), pins_(pins), effort_(effort), estimates_(estimates) {}

  // Takes starts by ascending floor. The floor of one that is not solved yet is that of the least
  // threshold which host and devices together would allow.
  SearchResult run() {
    make_starts();
    std::int64_t bound = effort_.bound;  // of floors
    std::size_t done = 0;
    while (!starts_.empty() && starts_.begin()->first.first < bound) {
      report(effort_.progress, SearchProgress::Stage::starts, done, done + starts_.size());
      const Start start = std::move(starts_.extract(starts_.begin()).mapped());
      if (!start.usage) {
        solve(start);
        continue;
      }
      ++done;
      // If all else fits with the states on the device, moving them to the host only costs
      // transfers.
      Strategy on_device = start.strategy;
      on_device.offload_states(false);
      if (on_device != start.strategy && seen(on_device)) continue;
      consider(start.strategy, *start.usage);
      if (effort_.any) return finished();
      bound = std::min(bound, result_.best->nanoseconds);
    }
    if (!fitting_ && starts_.empty()) take_lightest();
    return finished();
  }

  // Improves one strategy that fits.
  SearchResult run_from(const Strategy& strategy) {
    consider(strategy, usage(problem_, strategy));
    return finished();
  }

 private:
  struct Start {
    Strategy strategy, skeleton;
    std::optional<Usage> usage;  // once it is solved
  };

  SearchResult finished() {
    if (result_.best && !effort_.any) improve();
    result_.front = pareto(problem_, std::move(seen_));
    return std::move(result_);
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

  void push(std::int64_t floor, const Start& start) {
    const auto number = static_cast<std::int64_t>(pushed_++);
    starts_.emplace(std::pair(floor, number), start);
  }

  // Adds what was made of a skeleton, if it fits.
  void add_solved(const Strategy& skeleton, const Strategy& made) {
    const Strategy strategy = canonical(problem_, made);
    if (!check(problem_, strategy).empty() || !stays(problem_, pins_, skeleton, strategy)) return;
    ++result_.candidates;
    const Usage need = usage(problem_, strategy);
    if (!within(problem_, need)) return;
    fitting_ = true;
    push(floor_of(strategy), {strategy, skeleton, need});
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

  // Adds a skeleton with keys and values on the device and not, and with segments of any length:
  // longer ones leave more room for attention outputs, until all are stored, and repeat more.
  void add_skeleton(const Strategy& skeleton) {
    for (const bool resident : {true, false}) {
      std::int64_t fastest = std::numeric_limits<std::int64_t>::max();
      for (const std::vector<std::int64_t>& segments : segment_shapes(problem_.model.layers)) {
        Strategy strategy = skeleton;
        strategy.segments = segments;
        if (resident) strategy = resident_keys(problem_, strategy);
        const std::int64_t least = least_threshold(problem_, strategy);
        const bool stores = least < thresholds(problem_, strategy);
        // In some layers a threshold may be one chunk less than in all.
        const StoredFrom from{std::max<std::int64_t>(0, least - 1), problem_.model.layers};
        Strategy most = stores ? with_stored_from(problem_, strategy, from)
                               : with_stored(problem_, strategy, {});
        const bool room = least == 0 && longest_segment(strategy) == 1;  // for everything
        if (room) {
          const std::int64_t everything = most_everything(problem_, strategy);
          most = with_stored(problem_, strategy, {everything, problem_.model.layers - everything});
        }
        const std::int64_t floor = floor_of(most);
        if (floor < effort_.bound) push(floor, {strategy, skeleton, {}});
        if (least == 0 || (stores && floor > fastest)) break;
        if (stores) fastest = floor;
      }
    }
  }

  void make_starts() {
    for (const Split& split : splits(problem_, pins_)) {
      for (const std::int64_t tokens : lengths_of(problem_, pins_, split)) {
        for (const BackwardOrder order : {BackwardOrder::q_outer, BackwardOrder::kv_outer}) {
          for (const bool offload : {false, true}) {
            Strategy skeleton = skeleton_of(problem_, split, tokens);
            skeleton.tiles.backward_order = order;
            skeleton.offload_states(offload);
            skeleton = entered(problem_, pins_, skeleton);
            if (!check(problem_, skeleton).empty()) continue;
            // A strategy is fastest if it repeats no forward.
            const Strategy stored = with_stored(problem_, skeleton, {problem_.model.layers, 0});
            if (floor_of(stored) < effort_.bound) add_skeleton(skeleton);
          }
        }
      }
    }
  }

  void take_lightest() {
    const auto light = any_fit(problem_, pins_);
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

  // Simulates a strategy that fits; true when it becomes the best.
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

  void improve() {
    const std::vector<Lever>& all = effort_.levers;
    std::size_t unchanged = 0;
    for (std::size_t i = 0; unchanged < all.size(); i = (i + 1) % all.size()) {
      report(effort_.progress, SearchProgress::Stage::levers, unchanged, all.size());
      bool gained = false;
      const Strategy from = result_.best->strategy;
      for (const Change& change : all[i].changes(problem_, from)) {
        if (!allowed(problem_, pins_, change.strategy)) continue;
        ++result_.candidates;
        const Usage need = usage(problem_, change.strategy);
        if (!within(problem_, need)) continue;
        if (static_cast<double>(floor_of(change.strategy)) >= better()) continue;
        if (consider(change.strategy, need)) gained = true;
      }
      unchanged = gained ? 0 : unchanged + 1;
    }
  }

  const Problem& problem_;
  const Pins& pins_;
  const SearchEffort& effort_;
  Estimates& estimates_;
  std::map<std::pair<std::int64_t, std::int64_t>, Start> starts_;  // by floor and number
  std::size_t pushed_ = 0;
  bool fitting_ = false;  // a start that fits was found
  std::vector<Candidate> seen_;
  std::int64_t fastest_ = std::numeric_limits<std::int64_t>::max();
  SearchResult result_;
};

SearchResult pinned_or_free(const Problem& problem, const Pins& pins, const SearchEffort& effort,
                            Estimates& estimates) {
  if (!pins.strategy) return Search(problem, pins, effort, estimates).run();
  SearchResult result;
  result.candidates = 1;
  const Usage need = usage(problem, *pins.strategy);
  if (!within(problem, need)) return result;
  result.best = Candidate{*pins.strategy, need, estimates.nanoseconds(*pins.strategy)};
  result.front = {*result.best};
  return result;
}

// The bytes of a strategy after placement, which are at most the predicted ones.
Usage placed_usage(const Problem& problem, const Strategy& strategy) {
  Schedule schedule = lower_without_states(problem, strategy);
  depend(schedule);
  return usage(problem, strategy, place(schedule));
}

// The strategy as a plan would have it: bytes after placement, and the time of its edges.
Candidate settled(const Problem& problem, const Strategy& strategy, const Machine& machine) {
  Schedule schedule = lower_without_states(problem, strategy);
  depend(schedule);
  const Usage need = usage(problem, strategy, place(schedule));
  return {strategy, need, simulate(schedule, schedule.train, machine).nanoseconds};
}

// Divides what the best stores between host and device so that both have as much headroom as a step
// of at most `longest` nanoseconds allows.
void relax(const Problem& problem, const Pins& pins, double longest, const Machine& machine,
           const OnProgress& progress, SearchResult& result) {
  Candidate& best = *result.best;
  const Bytes gain = usage(problem, best.strategy).arena - best.usage.arena;
  const double low = headroom(problem, best.usage);
  const double high = std::max(left(best.usage.device, problem.device_budget),
                               left(best.usage.host_node, problem.host_budget));
  constexpr int kSteps = 32;
  for (int i = kSteps; i > 0; --i) {
    report(progress, SearchProgress::Stage::headroom, static_cast<std::size_t>(kSteps - i), kSteps);
    const double wanted = low + (high - low) * i / kSteps;
    Problem tight = problem;
    tight.host_budget = part(problem.host_budget, 1 - wanted);
    tight.device_budget = part(problem.device_budget, 1 - wanted) + gain;
    const Strategy strategy = divided(tight, best.strategy);
    if (!allowed(problem, pins, strategy)) continue;
    if (!within(tight, usage(problem, strategy))) continue;
    const Candidate now = settled(problem, strategy, machine);
    ++result.simulated;
    if (static_cast<double>(now.nanoseconds) > longest || headroom(problem, now.usage) <= low) {
      continue;
    }
    best = now;
    return;
  }
}

// Gives the front the bytes and times of plans, since a user sees them side by side. By these, the
// best is the one with the most headroom among the fastest.
void finish(const Problem& problem, const Pins& pins, const SearchEffort& effort,
            const Machine& machine, SearchResult& result) {
  constexpr double kEqualMemory = 1.0 / 64;
  result.front = pareto(problem, std::move(result.front), kEqualMemory);
  for (std::size_t i = 0; i < result.front.size(); ++i) {
    report(effort.progress, SearchProgress::Stage::plans, i, result.front.size());
    result.front[i] = settled(problem, result.front[i].strategy, machine);
  }
  // A search with more room than there is has found strategies that placement does not make fit.
  std::erase_if(result.front, [&](const Candidate& one) { return !within(problem, one.usage); });
  result.best = settled(problem, result.best->strategy, machine);
  double longest = static_cast<double>(result.best->nanoseconds);
  for (const Candidate& one : result.front) {
    longest = std::min(longest, static_cast<double>(one.nanoseconds));
  }
  longest *= 1 + effort.indifference;
  for (const Candidate& one : result.front) {
    if (static_cast<double>(one.nanoseconds) > longest) continue;
    if (static_cast<double>(result.best->nanoseconds) > longest ||
        headroom(problem, one.usage) > headroom(problem, result.best->usage)) {
      result.best = one;
    }
  }
  if (!pins.strategy) relax(problem, pins, longest, machine, effort.progress, result);
  result.front.push_back(*result.best);
  result.front = pareto(problem, std::move(result.front), kEqualMemory);
}

// Takes the fastest of the front that fits after placement, if it is faster than the best.
void take_placed(const Problem& problem, std::vector<Candidate> front, SearchResult& result) {
  for (const Candidate& one : front) {
    if (result.best && cost(one) >= cost(*result.best)) return;
    const Usage placed = placed_usage(problem, one.strategy);
    if (!within(problem, placed)) continue;
    result.best = {one.strategy, placed, one.nanoseconds};
    result.front = std::move(front);
    result.shortage.reset();
    return;
  }
}

// The prediction is never too low. Another strategy may use the bytes that placement saves on
// the current answer, if placement saves about as much there.
void use_placement(const Problem& problem, const Pins& pins, const SearchEffort& effort,
                   Estimates& estimates, SearchResult& result) {
  if (!result.best) {
    result.shortage = shortage(problem, pins);
    if (result.shortage->binding != Binding::device) return;
  }
  const Strategy& reference = result.best ? result.best->strategy : result.shortage->closest;
  const Bytes room = placement_gain(problem, reference);
  for (const std::int64_t eighths : {8, 6, 4, 2}) {
    Problem roomier = problem;
    roomier.device_budget += Bytes{room.value / 8 * eighths};
    SearchResult second = pinned_or_free(roomier, pins, effort, estimates);
    result.candidates += second.candidates;
    // If a search finds or gains nothing with this much room, it does not with less.
    if (second.front.empty()) return;
    if (result.best && cost(second.front.front()) >= cost(*result.best)) return;
    take_placed(problem, std::move(second.front), result);
    if (result.best && effort.any) return;
  }
}

// Adds what another search found.
void add_front(const Problem& problem, std::vector<Candidate> front, SearchResult& result) {
  std::move(front.begin(), front.end(), std::back_inserter(result.front));
  result.front = pareto(problem, std::move(result.front));
}

// One lever at a time ends in a local optimum. Where the answer is that of one region, each of the
// others may have a faster one.
void enter_regions(const Problem& problem, const Pins& pins, const SearchEffort& effort,
                   Estimates& estimates, SearchResult& result) {
  bool gained = false;
  for (const Method* method : methods()) {
    if (result.best && method == method_of(problem, result.best->strategy)) continue;
    Pins region = pins;
    region.method = method;
    if (!possible(problem, region)) continue;
    SearchEffort faster = effort;
    if (result.best) faster.bound = result.best->nanoseconds;
    SearchResult found = pinned_or_free(problem, region, faster, estimates);
    use_placement(problem, region, faster, estimates, found);
    result.candidates += found.candidates;
    if (!found.best) continue;
    add_front(problem, std::move(found.front), result);
    if (result.best && cost(*found.best) >= cost(*result.best)) continue;
    result.best = found.best;
    result.shortage.reset();
    gained = true;
  }
  if (!gained) return;
  // Beyond the region, levers may gain more.
  Problem roomier = problem;
  if (!fits(problem, result.best->strategy)) {
    roomier.device_budget += placement_gain(problem, result.best->strategy);
  }
  SearchResult beyond = Search(roomier, pins, effort, estimates).run_from(result.best->strategy);
  result.candidates += beyond.candidates;
  add_front(problem, std::move(beyond.front), result);
  take_placed(problem, result.front, result);
}

// The division between host and device may have made room for more.
void use_headroom(const Problem& problem, const Pins& pins, const SearchEffort& effort,
                  Estimates& estimates, SearchResult& result) {
  constexpr int kRounds = 4;
  for (int round = 0; round < kRounds; ++round) {
    const Strategy from = result.best->strategy;
    Problem roomier = problem;
    if (!fits(problem, from)) roomier.device_budget += placement_gain(problem, from);
    SearchResult more = Search(roomier, pins, effort, estimates).run_from(from);
    result.candidates += more.candidates;
    const double enough = (1 - effort.indifference) * cost(*result.best);
    if (!more.best || cost(*more.best) > enough) return;
    add_front(problem, std::move(more.front), result);
    take_placed(problem, result.front, result);
    finish(problem, pins, effort, estimates.machine(), result);
  }
}

}  // namespace

Bytes placement_gain(const Problem& problem, const Strategy& strategy) {
  return usage(problem, strategy).arena - placed_usage(problem, strategy).arena;
}

double headroom(const Problem& problem, const Usage& usage) {
  return std::min(left(usage.device, problem.device_budget),
                  left(usage.host_node, problem.host_budget));
}

double cost(const Candidate& candidate) {
  return static_cast<double>(candidate.nanoseconds) /
         static_cast<double>(candidate.strategy.mesh.replicas * candidate.strategy.micro_batches);
}

SearchResult search(const Problem& problem, const Pins& pins, const SearchEffort& effort) {
  require_possible(problem, pins);
  Estimates estimates(problem);
  SearchResult result = pinned_or_free(problem, pins, effort, estimates);
  if (!result.best || !effort.any) use_placement(problem, pins, effort, estimates, result);
  if (pins.method == nullptr && !pins.strategy && !effort.any) {
    enter_regions(problem, pins, effort, estimates, result);
  }
  if (!effort.any) {
    // A fast strategy may need more than placement saves where a lighter one does not.
    if (!result.best) {
      use_placement(problem, pins, {.levers = {}, .any = true}, estimates, result);
    }
    if (result.best) finish(problem, pins, effort, estimates.machine(), result);
    if (result.best && !pins.strategy) use_headroom(problem, pins, effort, estimates, result);
  }
  result.simulated += estimates.simulated();
  return result;
}

std::int64_t step_nanoseconds(const Problem& problem, const Strategy& strategy,
                              const Machine& machine) {
  Schedule schedule = lower_without_states(problem, strategy);
  depend(schedule);
  return simulate(schedule, schedule.train, machine).nanoseconds;
}

}  // namespace fpdt
