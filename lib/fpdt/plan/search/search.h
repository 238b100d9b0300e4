// Searches for the fastest strategy within the budgets. Among strategies that are about as fast, it
// takes the one with the most headroom.
//
// Bytes are predicted (bytes.h), seconds are estimated by shape (estimates.h); the answer and the
// front are placed and simulated in full. Starting points cover the choices that
// interact (parallelism, chunk length, loop order, what is stored), each filled up to the budgets.
// The search then improves the best one lever at a time until no single lever gains. It never
// times a strategy whose products and attention alone take longer than the best so far.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "fpdt/cost/machine.h"
#include "fpdt/plan/fit.h"
#include "fpdt/plan/lower.h"
#include "fpdt/plan/search/bound.h"
#include "fpdt/plan/search/feasible.h"
#include "fpdt/plan/search/levers.h"
#include "fpdt/plan/search/placed.h"
#include "fpdt/sim/simulate.h"

namespace fpdt {

struct Candidate {
  Strategy strategy;
  Usage usage;                   // before placement
  std::int64_t nanoseconds = 0;  // of a step at typical rates
};

// Nanoseconds a sequence. A step trains data_parallel * micro_batches sequences.
double cost(const Candidate& candidate);
// The smaller of the shares of both budgets that are left; negative if one is exceeded.
double headroom(const Problem& problem, const Usage& usage);

// How much shorter a step is with more of one memory; 0: it would not help.
struct Price {
  Bytes more;
  double step_seconds = 0;
};

struct SearchResult {
  std::optional<Candidate> best;
  std::optional<Shortage> shortage;  // when there is no best
  std::vector<Candidate> front;      // that fit, Pareto: cost, device, host; ascending cost
  std::int64_t candidates = 0;       // strategies whose bytes were computed
  std::int64_t simulated = 0;
  double pulled = 1;   // the time of the best start over that of what levers made of it
  Bound bound;         // of all strategies
  Price host, device;  // of a node's host memory, and of each device's; if asked for
};

// The progress of work, for whoever waits for it.
struct SearchProgress {
  enum class Stage : std::uint8_t {
    starts,    // starting points simulated in this pass; a pass begins with none
    levers,    // levers pulled since the last gain
    plans,     // of the Pareto front, placed
    headroom,  // divisions between host and device, placed
    lengths,   // sequence lengths tried
    worth,     // levers of a strategy, each at its best other value
    rungs,     // levers of a ladder, placed
  };
  Stage stage = Stage::starts;
  std::int64_t done = 0;
  std::int64_t total = 0;    // 0: not known
  std::int64_t longest = 0;  // of `lengths`: tokens that fit so far
};
using OnProgress = std::function<void(const SearchProgress&)>;
inline void report(const OnProgress& progress, SearchProgress::Stage stage, std::size_t done,
                   std::size_t total) {
  if (!progress) return;
  progress({stage, static_cast<std::int64_t>(done), static_cast<std::int64_t>(total), 0});
}

struct SearchEffort {
  // The search stops at gains below this share of a step, which are noise of the rates. Strategies
  // that differ by less are equally fast.
  double indifference = 1e-3;
  std::vector<Lever> levers = fpdt::levers();  // those that are pulled one at a time
  // Only steps of fewer nanoseconds matter.
  std::int64_t bound = std::numeric_limits<std::int64_t>::max();
  // What takes so many times as long as the bound is left: levers do not make it faster than that.
  double hopeless = 2;
  bool any = false;          // the first strategy that fits is enough
  bool few_layers = false;   // of `any`: believe what few layers of a step need, once placed
  bool front = true;         // with the members that are too slow to be the answer
  bool prices = false;       // say what more memory would gain: two more climbs
  OnProgress progress = {};  // called often
};

// InputError as of require_possible, when the pins cannot work, or the cluster has no rates.
SearchResult search(const Problem& problem, const Pins& pins = {}, const SearchEffort& effort = {});

// One change of a lever, with its effects.
struct Worth {
  std::string lever;
  Change change;
  Usage usage;
  bool fits = false;
  std::int64_t nanoseconds = 0;
};
// The best other value of each lever of a strategy (by cost, fitting ones first).
std::vector<Worth> worth(const Problem& question, const Strategy& strategy,
                         const OnProgress& progress = {});

// What a plan of a strategy needs, and how long its step takes.
struct Planned {
  Placement placement;
  std::int64_t nanoseconds = 0;
};
Planned planned(const Problem& problem, const Strategy& strategy, const Machine& machine);

// The simulated time of a step, without placement.
std::int64_t step_nanoseconds(const Problem& problem, const Strategy& strategy,
                              const Machine& machine);

}  // namespace fpdt
