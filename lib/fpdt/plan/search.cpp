// Generates starting points, then improves one lever at a time.
#include "fpdt/plan/search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "fpdt/base/assert.h"
#include "fpdt/base/math.h"
#include "fpdt/plan/methods/fpdt.h"
#include "fpdt/plan/place.h"
#include "fpdt/schedule/depend.h"

namespace fpdt {
namespace {

bool no_heavier(const Usage& a, const Usage& b) {
  return a.device <= b.device && a.host_node <= b.host_node;
}

// The chunk lengths that the pins allow.
std::vector<std::int64_t> lengths_of(const Problem& problem, const Pins& pins,
                                     std::int64_t sequence_parallel) {
  if (pins.chunk_tokens) return {*pins.chunk_tokens};
  const std::int64_t unit = sequence_parallel * problem.cluster.row_multiple;
  const std::int64_t whole = round_up(problem.seq_len, unit);
  if (pins.method == Method::ulysses) return {whole};
  std::vector<std::int64_t> lengths = chunk_lengths(problem, sequence_parallel);
  const bool several = lengths.size() > 1 && lengths.back() == whole;
  if (pins.method == Method::fpdt && several) lengths.pop_back();
  return lengths;
}

// Whether a change respects the pins.
bool allowed(const Problem& problem, const Pins& pins, const Strategy& strategy) {
  if (pins.chunk_tokens && strategy.fpdt.chunk_tokens != *pins.chunk_tokens) return false;
  if (pins.method == Method::any) return true;
  return (geometry(problem, strategy).chunks == 1) == (pins.method == Method::ulysses);
}

// The strategy with keys, values and their gradients on the device, in one tile over all keys.
Strategy resident_keys(const Problem& problem, Strategy strategy) {
  strategy = with_kept(strategy, TensorClass::kv, 1);
  strategy = with_kept(strategy, TensorClass::dkv, 1);
  strategy.fpdt.long_tiles = true;
  return tidied(problem, strategy);
}

class Search {
 public:
  Search(const Problem& problem, const Pins& pins, const SearchEffort& effort)
      : problem_(problem),
        pins_(pins),
        effort_(effort),
        machine_(problem.cluster, RateEnd::typical) {}

  SearchResult run() {
    for (const Start& start : starts()) {
      if (result_.best && start.floor >= value(*result_.best)) break;
      consider(start.strategy, start.usage);
    }
    if (result_.best) improve();
    result_.front = front();
    return std::move(result_);
  }

 private:
  struct Start {
    Strategy strategy;
    Usage usage;
    double floor = 0;
  };

  double per_sequence(std::int64_t nanoseconds, const Strategy& strategy) const {
    return static_cast<double>(nanoseconds) /
           static_cast<double>(strategy.data_parallel * strategy.micro_batches);
  }
  // What the search minimises: nanoseconds a sequence, with a charge for replicas.
  double value(std::int64_t nanoseconds, const Strategy& strategy) const {
    const double doublings = std::log2(static_cast<double>(strategy.data_parallel));
    return per_sequence(nanoseconds, strategy) * (1 + effort_.replica_gain * doublings);
  }
  double value(const Candidate& candidate) const {
    return value(candidate.nanoseconds, candidate.strategy);
  }
  double floor_of(const Strategy& strategy) const {
    return value(compute_floor(problem_, strategy, machine_), strategy);
  }

  void add_start(std::vector<Start>& starts, const Strategy& raw) {
    const Strategy strategy = tidied(problem_, raw);
    if (!check(problem_, strategy).empty()) return;
    ++result_.candidates;
    const Usage need = usage(problem_, strategy);
    if (!within(problem_, need)) return;
    starts.push_back({strategy, need, floor_of(strategy)});
  }

  // Adds filled strategies of one skeleton, with keys and values on the device where they fit.
  void add_skeleton(std::vector<Start>& starts, const Strategy& skeleton) {
    const std::size_t before = starts.size();
    for (const bool resident : {true, false}) {
      Strategy strategy = skeleton;
      if (resident) {
        strategy = resident_keys(problem_, strategy);
        if (!within(problem_, usage(problem_, filled(problem_, strategy, false)))) continue;
      }
      add_start(starts, filled(problem_, strategy, false));
    }
    if (starts.size() > before) return;
    // Tries intervals until one leaves repeats the room to store their attention output.
    for (const std::int64_t every : checkpoint_intervals(problem_)) {
      if (every == 1) continue;
      Strategy strategy = skeleton;
      strategy.fpdt.checkpoint_every = every;
      add_start(starts, filled(problem_, strategy, false));
      if (starts.size() == before) continue;
      if (stored_layers(problem_, starts.back().strategy).attention > 0) return;
    }
  }

  std::vector<Start> starts() {
    std::vector<Start> starts;
    for (const std::int64_t degree : data_parallel_degrees(problem_)) {
      for (const std::int64_t tokens : lengths_of(problem_, pins_, problem_.ranks() / degree)) {
        for (const BackwardOrder order : {BackwardOrder::q_outer, BackwardOrder::kv_outer}) {
          for (const bool offload : {false, true}) {
            Strategy skeleton = spilled(problem_, degree, tokens);
            skeleton.fpdt.backward_order = order;
            skeleton.optimizer_offload = offload;
            if (check(problem_, skeleton).empty()) add_skeleton(starts, skeleton);
          }
        }
      }
    }
    if (starts.empty()) {
      if (const auto light = any_fit(problem_, pins_)) add_start(starts, *light);
    }
    std::stable_sort(starts.begin(), starts.end(),
                     [](const Start& a, const Start& b) { return a.floor < b.floor; });
    return starts;
  }

  // Simulates a strategy that fits; true when it becomes the best.
  bool consider(const Strategy& strategy, const Usage& need) {
    for (const Candidate& seen : seen_) {
      if (seen.strategy == strategy) return false;
    }
    seen_.push_back({strategy, need, step_nanoseconds(problem_, strategy, machine_)});
    ++result_.simulated;
    const Candidate& now = seen_.back();
    fastest_ = std::min(fastest_, value(now));
    const bool gains =
        !result_.best || value(now) < value(*result_.best) * (1 - effort_.indifference);
    // About as fast in less memory is better, but not a reason to keep searching.
    if (gains || (value(now) <= fastest_ * (1 + effort_.indifference) &&
                  no_heavier(need, result_.best->usage) && need != result_.best->usage)) {
      result_.best = now;
    }
    return gains;
  }

  void improve() {
    const std::vector<Lever>& all = effort_.levers;
    std::size_t unchanged = 0;
    for (std::size_t i = 0; unchanged < all.size(); i = (i + 1) % all.size()) {
      bool gained = false;
      const Strategy from = result_.best->strategy;
      for (const Change& change : all[i].changes(problem_, from)) {
        if (!allowed(problem_, pins_, change.strategy)) continue;
        ++result_.candidates;
        const Usage need = usage(problem_, change.strategy);
        if (!within(problem_, need)) continue;
        if (floor_of(change.strategy) >= value(*result_.best) * (1 - effort_.indifference)) {
          continue;
        }
        if (consider(change.strategy, need)) gained = true;
      }
      unchanged = gained ? 0 : unchanged + 1;
    }
  }

  std::vector<Candidate> front() const {
    std::vector<Candidate> front = seen_;
    std::stable_sort(front.begin(), front.end(),
                     [](const Candidate& a, const Candidate& b) { return cost(a) < cost(b); });
    std::vector<Candidate> kept;
    for (const Candidate& candidate : front) {
      const bool beaten = std::any_of(kept.begin(), kept.end(), [&](const Candidate& other) {
        return no_heavier(other.usage, candidate.usage);
      });
      if (!beaten) kept.push_back(candidate);
    }
    return kept;
  }

  const Problem& problem_;
  const Pins& pins_;
  const SearchEffort& effort_;
  Machine machine_;
  std::vector<Candidate> seen_;
  double fastest_ = std::numeric_limits<double>::infinity();
  SearchResult result_;
};

// Strategies by ascending need of memory, for feasibility tests.
std::vector<Strategy> frugal(const Problem& problem, const Pins& pins) {
  if (pins.strategy) return {*pins.strategy};
  const std::vector<std::int64_t> degrees = data_parallel_degrees(problem);
  if (degrees.empty()) return {};
  std::vector<std::int64_t> lengths = lengths_of(problem, pins, problem.ranks() / degrees.front());
  constexpr std::size_t kShortest = 3;
  if (lengths.size() > kShortest) lengths.resize(kShortest);
  std::vector<Strategy> all;
  for (const std::int64_t every : checkpoint_intervals(problem)) {
    for (const bool offload : {false, true}) {
      for (const std::int64_t tokens : lengths) {
        for (const BackwardOrder order : {BackwardOrder::q_outer, BackwardOrder::kv_outer}) {
          Strategy strategy = spilled(problem, degrees.front(), tokens);
          strategy.fpdt.checkpoint_every = every;
          strategy.fpdt.backward_order = order;
          strategy.fpdt.overlap_all_to_all = false;
          strategy.fpdt.loss_tile_rows =
              std::max<std::int64_t>(1024, least_loss_rows(problem, strategy));
          strategy.optimizer_offload = offload;
          strategy = tidied(problem, strategy);
          if (check(problem, strategy).empty()) all.push_back(strategy);
        }
      }
    }
  }
  return all;
}

Strategy lightest(const Problem& problem, const Pins& pins, const Strategy& strategy) {
  return pins.strategy ? strategy : unburdened(problem, with_stored(problem, strategy, {}));
}

SearchResult pinned_or_free(const Problem& problem, const Pins& pins, const SearchEffort& effort) {
  if (!pins.strategy) return Search(problem, pins, effort).run();
  SearchResult result;
  result.candidates = 1;
  const Usage need = usage(problem, *pins.strategy);
  if (!within(problem, need)) return result;
  const Machine machine(problem.cluster, RateEnd::typical);
  result.best = Candidate{*pins.strategy, need, step_nanoseconds(problem, *pins.strategy, machine)};
  result.front = {*result.best};
  result.simulated = 1;
  return result;
}

// How many bytes smaller the placed arena is than the closed form.
Bytes placement_gain(const Problem& problem, const Strategy& strategy) {
  Schedule schedule = lower_fpdt(problem, strategy);
  depend(schedule);
  const Bytes arena = place(schedule).of(MemorySpace::device).arena;
  return std::max(predict(problem, strategy).device - arena, Bytes{});
}

void take_off(Usage& usage, Bytes gain) {
  usage.arena = usage.arena - gain;
  usage.device = usage.device - gain;
}

// Whether more device memory could speed up the best strategy: some layers still repeat work.
bool starved(const Problem& problem, const SearchResult& result) {
  const StoredLayers stored = stored_layers(problem, result.best->strategy);
  return stored.everything + stored.attention < problem.model.layers;
}

}  // namespace

double cost(const Candidate& candidate) {
  return static_cast<double>(candidate.nanoseconds) /
         static_cast<double>(candidate.strategy.data_parallel * candidate.strategy.micro_batches);
}

std::string_view word(Binding binding) {
  constexpr std::array<std::string_view, 5> words{"device", "host", "compute", "copies",
                                                  "collectives"};
  return words[static_cast<std::size_t>(binding)];
}

void require_possible(const Problem& problem, const Pins& pins) {
  Strategy strategy = pins.strategy.value_or(default_strategy(problem));
  const std::vector<std::int64_t> degrees = data_parallel_degrees(problem);
  if (!pins.strategy && !degrees.empty()) {
    strategy = spilled(problem, degrees.front(),
                       lengths_of(problem, pins, problem.ranks() / degrees.front()).front());
  }
  const std::vector<Diagnostic> findings = check(problem, strategy);
  if (!findings.empty()) throw InputError(format_diagnostics(findings));
}

SearchResult search(const Problem& problem, const Pins& pins, const SearchEffort& effort) {
  require_possible(problem, pins);
  SearchResult result = pinned_or_free(problem, pins, effort);
  if (result.best && !starved(problem, result)) return result;
  const Shortage least = result.best ? Shortage{} : shortage(problem, pins);
  if (!result.best) result.shortage = least;
  if (!result.best && least.binding != Binding::device) return result;
  // The closed form never underestimates. Another strategy may use the bytes that placement saves
  // on the current answer, if placement saves about as much there.
  const Strategy& reference = result.best ? result.best->strategy : least.closest;
  const Bytes room = placement_gain(problem, reference);
  for (const std::int64_t part : {8, 6, 4, 2}) {
    Problem roomier = problem;
    roomier.device_budget += Bytes{room.value / 8 * part};
    SearchResult second = pinned_or_free(roomier, pins, effort);
    result.candidates += second.candidates;
    result.simulated += second.simulated;
    if (!second.best || (result.best && cost(*second.best) >= cost(*result.best))) return result;
    const Bytes gain = placement_gain(problem, second.best->strategy);
    if (second.best->usage.device - gain > problem.device_budget) continue;
    for (Candidate& candidate : second.front) take_off(candidate.usage, gain);
    take_off(second.best->usage, gain);
    result.best = std::move(second.best);
    result.front = std::move(second.front);
    result.shortage.reset();
    return result;
  }
  return result;
}

std::optional<Strategy> any_fit(const Problem& problem, const Pins& pins) {
  for (const Strategy& strategy : frugal(problem, pins)) {
    if (!check(problem, strategy).empty()) continue;
    const Strategy light = lightest(problem, pins, strategy);
    if (within(problem, usage(problem, light))) return light;
    if (pins.strategy) continue;
    const Strategy resident = lightest(problem, pins, resident_keys(problem, strategy));
    if (within(problem, usage(problem, resident))) return resident;
  }
  return std::nullopt;
}

Shortage shortage(const Problem& problem, const Pins& pins) {
  const std::vector<Strategy> all = frugal(problem, pins);
  FPDT_ASSERT(!all.empty());
  Shortage least;
  bool device_fits = false;
  bool first = true;
  for (const Strategy& strategy : all) {
    const Usage need = usage(problem, strategy);
    const bool fits = need.device <= problem.device_budget;
    const Strategy light = fits ? lightest(problem, pins, strategy) : strategy;
    const Bytes bytes = fits ? usage(problem, light).host_node : need.device;
    if (device_fits && !fits) continue;
    if (!first && fits == device_fits && bytes >= least.need) continue;
    least = {fits ? Binding::host : Binding::device, bytes,
             fits ? problem.host_budget : problem.device_budget, light};
    device_fits = fits;
    first = false;
  }
  return least;
}

std::int64_t longest_sequence(const Problem& problem, const Pins& pins) {
  const auto fit = [&](std::int64_t tokens) {
    Problem other = problem;
    other.seq_len = tokens;
    return any_fit(other, pins).has_value();
  };
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  const std::int64_t positions = problem.model.learned_positions;
  const std::int64_t most = positions > 0 ? std::min(positions, kMost) : kMost;
  const std::int64_t unit = problem.ranks() * problem.cluster.row_multiple;
  std::int64_t low = std::min(unit, most);
  if (!fit(low)) return 0;
  std::int64_t high = low;
  while (high < most && fit(high)) {
    low = high;
    high = std::min(2 * high, most);
  }
  if (fit(high)) return high;
  const std::int64_t step = std::max(unit, low / 64 / unit * unit);
  while (high - low > step) {
    const std::int64_t middle = low + (high - low) / 2 / step * step;
    if (middle == low) break;
    (fit(middle) ? low : high) = middle;
  }
  return low;
}

std::vector<Worth> worth(const Problem& question, const Strategy& strategy) {
  // An answer that fits only after placement gets the budget plus its savings.
  Problem problem = question;
  if (!fits(problem, strategy)) problem.device_budget += placement_gain(problem, strategy);
  const Machine machine(problem.cluster, RateEnd::typical);
  std::vector<Worth> all;
  for (const Lever& lever : levers()) {
    std::optional<Worth> best;
    for (const Change& change : lever.changes(problem, strategy)) {
      Worth one{lever.name, change, usage(problem, change.strategy), false, 0};
      one.fits = within(problem, one.usage);
      if (best && best->fits && !one.fits) continue;
      one.nanoseconds = step_nanoseconds(problem, change.strategy, machine);
      const auto cost_of = [](const Worth& w) {
        return cost({w.change.strategy, w.usage, w.nanoseconds});
      };
      if (!best || (one.fits && !best->fits) || cost_of(one) < cost_of(*best)) best = one;
    }
    if (best) all.push_back(*best);
  }
  return all;
}

std::int64_t step_nanoseconds(const Problem& problem, const Strategy& strategy,
                              const Machine& machine) {
  const Schedule schedule = lower_fpdt(problem, strategy);
  SimulationOptions options;
  options.waits = SimulationOptions::Waits::hazards;
  return simulate(schedule, schedule.train, machine, options).nanoseconds;
}

std::int64_t compute_floor(const Problem& problem, const Strategy& strategy,
                           const Machine& machine) {
  const ModelSpec& model = problem.model;
  const Geometry shape = geometry(problem, strategy);
  const StoredLayers stored = stored_layers(problem, strategy);
  const std::int64_t every = strategy.fpdt.checkpoint_every;
  const auto layers = static_cast<double>(model.layers);
  const auto repeated = static_cast<double>(model.layers - stored.everything - stored.attention);
  const double reruns = layers * static_cast<double>(every - 1) / static_cast<double>(every);
  // In a segment whose repeats store attention, only the last layer repeats attention.
  const double last = every > 1 && stored.attention > 0 ? layers - reruns : 0;
  const auto tokens = static_cast<double>(problem.seq_len);
  const double pairs = tokens * (tokens + 1) / 2 * static_cast<double>(shape.heads) *
                       static_cast<double>(model.head_dim);
  const auto seconds = [&](Work work, double flops, std::int64_t size) {
    Demand demand;
    demand.work = work;
    demand.flops = flops;
    demand.size = size;
    return machine.seconds(demand);
  };
  const std::int64_t weights = model.hidden * (model.qkv_width() + model.q_width()) +
                               model.hidden * (model.up_width() + model.feed_forward);
  const double products =
      2 * static_cast<double>(weights) * tokens / static_cast<double>(shape.sequence_parallel);
  const double once =
      seconds(Work::attention_forward, 4 * pairs * (layers + repeated + reruns + last),
              shape.chunk_rows) +
      seconds(Work::attention_backward, 10 * pairs * layers, shape.chunk_rows) +
      seconds(Work::matmul, products * (3 * layers + repeated + reruns), shape.local_rows(0));
  constexpr double kMost = 9e18;  // centuries; simulation refuses such a step
  return static_cast<std::int64_t>(
      std::min(once * 1e9 * static_cast<double>(strategy.micro_batches), kMost));
}

}  // namespace fpdt
