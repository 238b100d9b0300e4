// Passes over the methods and over the room that placement leaves, then the proof of the best.
#include "fpdt/plan/search/search.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "fpdt/plan/few_tiles.h"
#include "fpdt/plan/lowering/lower_ops.h"
#include "fpdt/plan/search/climb.h"
#include "fpdt/plan/search/estimates.h"
#include "fpdt/plan/search/floor.h"
#include "fpdt/plan/search/placed.h"
#include "fpdt/schedule/depend.h"

namespace fpdt {
namespace {

// Front members that are this close in memory are shown as one.
constexpr double kEqualMemory = 1.0 / 64;

// The share of a budget that is not used.
double left(Bytes used, Bytes budget) {
  return 1 - static_cast<double>(used.value) /
                 static_cast<double>(std::max<std::int64_t>(budget.value, 1));
}

// The strategy with as much on the host as its budget allows, and the rest on the device. A chunk
// of attention output or layer input of all layers is large; chunks of lse, and of a tensor of one
// layer, fill what they leave.
Strategy divided(const Problem& problem, Strategy strategy) {
  const bool apart = strategy.layer_gradients == LayerGradients::apart;
  const TensorClass of_layer = apart ? TensorClass::layer_gradient : TensorClass::q;
  const std::initializer_list<TensorClass> fine = {of_layer, TensorClass::lse};
  const auto with = [&](std::initializer_list<TensorClass> tensors, double fraction) {
    for (const TensorClass tensor : tensors) strategy = with_kept(strategy, tensor, fraction);
    return usage(problem, strategy).host_node;
  };
  with({TensorClass::attention_output, TensorClass::layer_input}, 0);
  const Bytes without = with(fine, 1);
  Problem roomier = problem;
  roomier.host_budget += with(fine, 0) - without;
  return with_host_relieved(problem, with_host_relieved(roomier, strategy), fine);
}

// What searches learn about strategies. It depends neither on budgets nor on pins.
struct Learned {
  explicit Learned(Problem of) : problem(std::move(of)), estimates(problem) {}

  [[nodiscard]] std::int64_t simulated() const {
    return estimates.simulated() + std::ssize(settled);
  }

  Problem problem;
  Estimates estimates;
  std::deque<std::pair<Strategy, Usage>> placed;  // by few layers
  std::deque<Candidate> settled;
};

// A comparison asks about one problem for each method, and a sweep for each budget. So this thread
// remembers the last problems. A reference is valid until this is called again.
Learned& learned_of(Problem problem) {
  constexpr std::size_t kRemembered = 4;
  thread_local std::deque<Learned> all;
  problem.device_budget = problem.host_budget = Bytes{};
  const auto known = std::find_if(all.begin(), all.end(),
                                  [&](const Learned& one) { return one.problem == problem; });
  if (known != all.end()) return *known;
  if (all.size() == kRemembered) all.pop_front();
  return all.emplace_back(std::move(problem));
}

// What every pass has: the question, and what was learned.
class Passes {
 public:
  Passes(const Problem& problem, const Pins& pins, const SearchEffort& effort)
      : problem_(problem), pins_(pins), effort_(effort), learned_(learned_of(problem)) {}

  SearchResult run() {
    const std::int64_t simulated = learned_.simulated();
    SearchResult result = pass(problem_, pins_, effort_);
    if (!result.best || !effort_.any) {
      use_placement(pins_, effort_, reference(pins_, result), result);
    }
    const double pulled = pulled_;
    if (pins_.method == nullptr && !pins_.strategy && !effort_.any) enter_regions(result);
    if (!effort_.any) {
      // A fast strategy may need more than placement saves where a lighter one does not.
      if (!result.best) {
        use_placement(pins_, {.levers = {}, .any = true}, reference(pins_, result), result);
      }
      if (result.best) finish(result);
      if (result.best && !pins_.strategy) {
        use_headroom(result);
        enter_longer(pulled, result);
      }
    }
    result.simulated = learned_.simulated() - simulated;
    const Storage storage = result.best ? result.best->strategy.storage : Storage::bf16;
    const std::int64_t sequences =
        result.best ? result.best->strategy.mesh.replicas * result.best->strategy.micro_batches
                    : pins_.batch;
    const Storage gradients = result.best ? result.best->strategy.gradients : pins_.gradients;
    result.bound = bound_of(problem_, storage, gradients, sequences, estimates_.machine());
    if (result.best && !pins_.strategy && effort_.prices) add_prices(result);
    return result;
  }

 private:
  SearchResult pass(const Problem& problem, const Pins& pins, const SearchEffort& effort) {
    if (!pins.strategy) {
      SearchResult climbed = climb(problem, pins, effort, estimates_);
      pulled_ = std::max(pulled_, climbed.pulled);
      return climbed;
    }
    SearchResult result;
    result.candidates = 1;
    const Usage need = usage(problem, *pins.strategy);
    if (!within(problem, need)) return result;
    result.best = Candidate{*pins.strategy, need, settled(*pins.strategy).nanoseconds};
    result.front = {*result.best};
    return result;
  }

  // The strategy as a plan would have it: bytes after placement, and the time of its edges.
  const Candidate& settled(const Strategy& strategy) {
    auto& all = learned_.settled;
    const auto known = std::find_if(all.begin(), all.end(),
                                    [&](const Candidate& one) { return one.strategy == strategy; });
    if (known != all.end()) {
      settled_.push_back(&*known);
    } else {
      const Planned plan = planned(problem_, strategy, estimates_.machine());
      const Usage need = usage(problem_, strategy, plan.placement);
      settled_.push_back(&all.emplace_back(Candidate{strategy, need, plan.nanoseconds}));
    }
    return *settled_.back();
  }

  // The bytes after placement, by few layers unless this search knows more, or one strategy is
  // asked about. What other searches settled does not count: the same question has one answer.
  const Usage& nearly_placed(const Strategy& strategy) {
    const auto mine = std::find_if(settled_.begin(), settled_.end(),
                                   [&](const Candidate* one) { return one->strategy == strategy; });
    if (mine != settled_.end()) return (*mine)->usage;
    if (pins_.strategy) return settled(strategy).usage;
    auto& all = learned_.placed;
    const auto known = std::find_if(all.begin(), all.end(),
                                    [&](const auto& one) { return one.first == strategy; });
    if (known != all.end()) return known->second;
    const Placement placement = placement_by_few_layers(problem_, strategy);
    return all.emplace_back(strategy, usage(problem_, strategy, placement)).second;
  }

  // Whether the budgets hold a strategy, as far as that is known without its whole placement.
  bool nearly_fits(const Candidate& one) {
    if (within(problem_, one.usage)) return true;
    return (pins_.strategy || may_fit_placed(problem_, one.strategy)) &&
           within(problem_, nearly_placed(one.strategy));
  }

  Room gain_of(const Strategy& strategy) {
    return room_of(problem_, strategy, nearly_placed(strategy));
  }

  // The problem with as much more room as placement saves on a strategy that needs it.
  Problem roomier_for(const Strategy& strategy) {
    return fits(problem_, strategy) ? problem_ : with_room(problem_, gain_of(strategy));
  }

  // Takes the fastest of the front that fits after placement, if it is faster than the best.
  void take_placed(std::vector<Candidate> front, SearchResult& result) {
    for (const Candidate& one : front) {
      if (result.best && cost(one) >= cost(*result.best)) return;
      if (!nearly_fits(one)) continue;
      const Usage& need =
          effort_.few_layers ? nearly_placed(one.strategy) : settled(one.strategy).usage;
      if (!within(problem_, need)) continue;
      result.best = {one.strategy, need, one.nanoseconds};
      result.front = std::move(front);
      result.shortage.reset();
      return;
    }
  }

  // The strategy whose placement says how much room there is beyond the prediction.
  const Strategy* reference(const Pins& pins, SearchResult& result) const {
    if (result.best) return &result.best->strategy;
    result.shortage = shortage(problem_, pins);
    return &result.shortage->closest;
  }

  // Searches with that much more room, and takes what placement makes fit. False if it finds or
  // gains nothing; `needs` is then unchanged, and else what placement saves on its fastest.
  bool use_room(const Pins& pins, const SearchEffort& effort, const Room& room, Room& needs,
                SearchResult& result) {
    SearchResult second = pass(with_room(problem_, room), pins, effort);
    result.candidates += second.candidates;
    if (second.front.empty()) return false;
    if (result.best && cost(second.front.front()) >= cost(*result.best)) return false;
    needs = gain_of(second.front.front().strategy);
    take_placed(std::move(second.front), result);
    return true;
  }

  // The prediction is never too low. Another strategy may use the bytes that placement saves on
  // `like`, if placement saves about as much there; else those that it saves on that one.
  void use_placement(const Pins& pins, const SearchEffort& effort, const Strategy* like,
                     SearchResult& result) {
    if (like == nullptr) return;
    // What may be the answer is placed in any case.
    const std::optional<Room> few =
        result.best || pins.strategy ? std::nullopt : gain_of_few_chunks(problem_, *like);
    const Room all = few ? *few : gain_of(*like);
    for (const double share : {1.0, 0.75, 0.5, 0.25}) {
      const Room room{part(all.device, share), part(all.host, share)};
      Room needs;
      // What gains nothing with this much room does not with less.
      if (!use_room(pins, effort, room, needs, result)) return;
      if (result.best && effort.any) return;
      if (share < 1) continue;
      const Room own{std::min(room.device, needs.device), std::min(room.host, needs.host)};
      if (own != room) use_room(pins, effort, own, needs, result);
    }
  }

  // Adds what another search found.
  void add_front(std::vector<Candidate> front, SearchResult& result) {
    std::move(front.begin(), front.end(), std::back_inserter(result.front));
    result.front = pareto(problem_, std::move(result.front));
  }

  // A start of another region that takes this many times as long as the best is left: levers do not
  // make up for it. They take waiting away. Where the best hardly waits, they gain at most half of
  // that, or about twice what they gained on the way to the best.
  double hopeless(const Candidate& best, double pulled) const {
    constexpr double kHardly = 0.04;  // of its floor
    const std::int64_t floor = compute_floor(problem_, best.strategy, estimates_.machine());
    const double waits = static_cast<double>(best.nanoseconds) / static_cast<double>(floor) - 1;
    if (waits > kHardly) return 2;
    return 1 + std::max({effort_.indifference, waits / 2, 2 * (pulled - 1)});
  }

  // Takes what a region has that is faster than the best. Returns whether there is any. `pulled`:
  // what levers gained on the way to the best. `probe`: first looks with all the memory that
  // placement saves on the best, and leaves the region if nothing is faster even then.
  bool enter(const Pins& region, double pulled, bool probe, SearchResult& result) {
    if (!possible(problem_, region)) return false;
    SearchEffort faster = effort_;
    SearchResult most;
    if (result.best) {
      faster.bound = result.best->nanoseconds;
      faster.hopeless = hopeless(*result.best, pulled);
    }
    if (result.best && probe) {
      most = pass(with_room(problem_, gain_of(result.best->strategy)), region, faster);
      result.candidates += most.candidates;
      if (most.best ? cost(*most.best) >= cost(*result.best) : most.candidates == 0) return false;
    }
    SearchResult found = pass(problem_, region, faster);
    if (found.candidates == 0) return false;  // all that may fit is slower
    use_placement(region, faster, reference(region, found), found);
    take_placed(std::move(most.front), found);
    result.candidates += found.candidates;
    if (!found.best) return false;
    add_front(std::move(found.front), result);
    if (result.best &&
        (cost(*found.best) >= cost(*result.best) ||
         cost(settled(found.best->strategy)) >= cost(settled(result.best->strategy)))) {
      return false;  // estimates of different shapes are off by different shares
    }
    result.best = found.best;
    result.shortage.reset();
    return true;
  }

  // One lever at a time ends in a local optimum. Where the answer is that of one region, each of
  // the others may have a faster one.
  void enter_regions(SearchResult& result) {
    const double pulled = pulled_;
    bool gained = false;
    for (const Method* method : methods()) {
      if (result.best && method == method_of(problem_, result.best->strategy)) continue;
      Pins region = pins_;
      region.method = method;
      if (enter(region, pulled, true, result)) gained = true;
    }
    if (!gained) return;
    // Beyond the region, levers may gain more.
    const Strategy from = result.best->strategy;
    SearchResult beyond = climb_from(from, roomier_for(from), pins_, effort_, estimates_);
    result.candidates += beyond.candidates;
    add_front(std::move(beyond.front), result);
    take_placed(result.front, result);
  }

  // Starts are ordered by what they take before levers are pulled. Where these gain much, that
  // order says little about lengths, and the best start tends to have short chunks.
  void enter_longer(double pulled, SearchResult& result) {
    constexpr double kMuch = 1.01;
    const auto tokens = [&result] { return result.best->strategy.tiles.chunk_tokens; };
    std::int64_t before = 0;
    while (pulled > kMuch && !pins_.chunk_tokens && tokens() > before) {
      before = tokens();
      Pins region = pins_;
      region.chunk_tokens = 2 * before;
      SearchResult longer = result;
      const bool gained = enter(region, pulled, false, longer);
      result.candidates = longer.candidates;
      if (!gained) return;
      finish(longer);
      use_headroom(longer);
      result = std::move(longer);
    }
  }

  // Whether a strategy cannot be as fast as a plan, by an estimate that is no longer than its own.
  bool too_slow(const Candidate& one, const Candidate& plan) const {
    constexpr double kInexact = 1.005;  // long tiles of the loss
    return estimates_.simulates(one.strategy) &&
           static_cast<double>(one.nanoseconds) >
               kInexact * (1 + effort_.indifference) * static_cast<double>(plan.nanoseconds);
  }

  // Gives the front the bytes and times of plans, since a user sees them side by side. By these,
  // the best is the one with the most headroom among the fastest.
  void finish(SearchResult& result) {
    result.front = pareto(problem_, std::move(result.front), kEqualMemory);
    result.best = settled(result.best->strategy);
    if (!effort_.front) {
      std::erase_if(result.front,
                    [&](const Candidate& one) { return too_slow(one, *result.best); });
    }
    // A search with more room than there is has found strategies that placement does not make fit.
    std::vector<Candidate> plans;
    for (std::size_t i = 0; i < result.front.size(); ++i) {
      report(effort_.progress, SearchProgress::Stage::plans, i, result.front.size());
      const Candidate& one = result.front[i];
      if (!nearly_fits(one)) continue;
      const Candidate& plan = settled(one.strategy);
      if (within(problem_, plan.usage)) plans.push_back(plan);
    }
    result.front = std::move(plans);
    double longest = static_cast<double>(result.best->nanoseconds);
    for (const Candidate& one : result.front) {
      longest = std::min(longest, static_cast<double>(one.nanoseconds));
    }
    longest *= 1 + effort_.indifference;
    for (const Candidate& one : result.front) {
      if (static_cast<double>(one.nanoseconds) > longest) continue;
      if (static_cast<double>(result.best->nanoseconds) > longest ||
          headroom(problem_, one.usage) > headroom(problem_, result.best->usage)) {
        result.best = one;
      }
    }
    if (!pins_.strategy) relax(longest, *result.best);
    result.front.push_back(*result.best);
    result.front = pareto(problem_, std::move(result.front), kEqualMemory);
  }

  // Divides what the best stores between host and device so that both have as much headroom as a
  // step of at most `longest` nanoseconds allows.
  void relax(double longest, Candidate& best) {
    const Room gain = room_of(problem_, best.strategy, best.usage);
    const double low = headroom(problem_, best.usage);
    const double high = std::max(left(best.usage.device, problem_.device_budget),
                                 left(best.usage.host_node, problem_.host_budget));
    constexpr int kSteps = 32;
    int tries = 8;  // each is placed and simulated in full
    for (int i = kSteps; i > 0 && tries > 0; --i) {
      report(effort_.progress, SearchProgress::Stage::headroom,
             static_cast<std::size_t>(kSteps - i), kSteps);
      const double wanted = low + (high - low) * i / kSteps;
      Problem tight = problem_;
      tight.host_budget = part(problem_.host_budget, 1 - wanted);
      tight.device_budget = part(problem_.device_budget, 1 - wanted);
      tight = with_room(std::move(tight), gain);
      const Strategy strategy = canonical(problem_, divided(tight, best.strategy));
      if (!allowed(problem_, pins_, strategy)) continue;
      if (!within(tight, usage(problem_, strategy))) continue;
      --tries;
      const Candidate& now = settled(strategy);
      if (static_cast<double>(now.nanoseconds) > longest || headroom(problem_, now.usage) <= low) {
        continue;
      }
      best = now;
      return;
    }
  }

  // Asks for a strategy with an eighth more of each memory. Estimates choose it, a plan times it.
  void add_prices(SearchResult& result) {
    const Strategy from = result.best->strategy;
    const Problem now = roomier_for(from);
    const auto noise = [&](std::int64_t before, std::int64_t after) {
      return static_cast<double>(before - after) <
             effort_.indifference * static_cast<double>(before);
    };
    const auto price = [&](Bytes Problem::*budget) {
      Problem richer = now;
      const Bytes more = part(problem_.*budget, 1.0 / 8);
      richer.*budget += more;
      SearchEffort effort = effort_;
      effort.progress = {};
      const SearchResult found = climb_from(from, richer, pins_, effort, estimates_);
      if (noise(estimates_.nanoseconds(from), found.best->nanoseconds)) return Price{more, 0};
      const std::int64_t before = result.best->nanoseconds;
      const std::int64_t after =
          step_nanoseconds(problem_, found.best->strategy, estimates_.machine());
      return Price{more, noise(before, after) ? 0 : static_cast<double>(before - after) * 1e-9};
    };
    result.host = price(&Problem::host_budget);
    result.device = price(&Problem::device_budget);
  }

  // The division between host and device may have made room for more.
  void use_headroom(SearchResult& result) {
    constexpr int kRounds = 4;
    for (int round = 0; round < kRounds; ++round) {
      const Strategy from = result.best->strategy;
      SearchResult more = climb_from(from, roomier_for(from), pins_, effort_, estimates_);
      result.candidates += more.candidates;
      const auto now = static_cast<double>(estimates_.nanoseconds(from));
      const double enough = (1 - effort_.indifference) * now;
      if (!more.best || static_cast<double>(more.best->nanoseconds) > enough) return;
      std::move(more.front.begin(), more.front.end(), std::back_inserter(result.front));
      finish(result);
      if (result.best->strategy == from) return;
    }
  }

  const Problem& problem_;
  const Pins& pins_;
  const SearchEffort& effort_;
  Learned& learned_;
  Estimates& estimates_ = learned_.estimates;
  std::vector<const Candidate*> settled_;  // by this search
  double pulled_ = 1;                      // the most that levers gained
};

}  // namespace

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
  return Passes(problem, pins, effort).run();
}

namespace {

// The program of a step, with edges but without the table of states.
struct TimedStep {
  TimedStep(const Problem& problem, const Strategy& strategy)
      : schedule(lower_without_states(problem, strategy)), program(schedule) {
    depend(program);
  }
  TimedStep(const TimedStep&) = delete;
  TimedStep& operator=(const TimedStep&) = delete;

  std::int64_t nanoseconds(const Machine& machine) const {
    return simulate(program, schedule.train, machine).nanoseconds;
  }

  Schedule schedule;
  Program program;
};

}  // namespace

Planned planned(const Problem& problem, const Strategy& strategy, const Machine& machine) {
  const TimedStep step(problem, strategy);
  return {placement_of(step.program), step.nanoseconds(machine)};
}

std::int64_t step_nanoseconds(const Problem& problem, const Strategy& strategy,
                              const Machine& machine) {
  return TimedStep(problem, strategy).nanoseconds(machine);
}

}  // namespace fpdt
