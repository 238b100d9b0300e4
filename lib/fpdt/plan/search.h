// Searches for the fastest strategy within the budgets. Among strategies that are about as fast, it
// takes the one with the most headroom.
//
// Bytes are solved in closed form, seconds are simulated. Starting points cover the choices that
// interact (parallelism, chunk length, loop order, what is stored), each filled up to the budgets.
// The search then improves the best one lever at a time until no single change is faster. It never
// simulates a strategy whose products and attention alone take longer than the best so far.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fpdt/cost/machine.h"
#include "fpdt/plan/fit.h"
#include "fpdt/plan/levers.h"
#include "fpdt/plan/lower.h"
#include "fpdt/sim/simulate.h"

namespace fpdt {

// The choices that the user has made already.
enum class Method : std::uint8_t { any, fpdt, ulysses };  // several chunks, or one

struct Pins {
  Method method = Method::any;
  std::optional<std::int64_t> chunk_tokens;
  std::optional<Strategy> strategy;  // pins all choices, the batch too
  std::int64_t batch = 1;            // sequences of a step
  std::optional<std::int64_t> data_parallel{};
};

// How the sequences of a step are divided: data_parallel * micro_batches = batch.
struct Split {
  std::int64_t data_parallel = 1;
  std::int64_t micro_batches = 1;
};
// Those that the heads and the pins allow, ascending by data_parallel. Empty: the ranks of this
// problem cannot share the batch.
std::vector<Split> splits(const Problem& problem, const Pins& pins);

struct Candidate {
  Strategy strategy;
  Usage usage;                   // closed form
  std::int64_t nanoseconds = 0;  // of a step at typical rates
};

// Nanoseconds a sequence. A step trains data_parallel * micro_batches sequences.
double cost(const Candidate& candidate);
// The smaller of the shares of both budgets that are left; negative if one is exceeded.
double headroom(const Problem& problem, const Usage& usage);

enum class Binding : std::uint8_t { device, host, compute, copies, collectives };
std::string_view word(Binding binding);

// A budget that is too small.
struct Need {
  Binding memory = Binding::device;  // device or host
  Bytes need;
  Bytes have;
};

// Why nothing fits: the space that every strategy exceeds, and the least bytes needed there.
struct Shortage {
  Binding binding = Binding::device;
  Bytes need;
  Bytes have;
  Strategy closest;  // it needs those bytes
};
// Every budget that the closest strategy exceeds, the binding one first.
std::vector<Need> needs(const Problem& problem, const Shortage& shortage);

struct SearchResult {
  std::optional<Candidate> best;
  std::optional<Shortage> shortage;  // when there is no best
  std::vector<Candidate> front;      // Pareto: cost, device, host; ascending cost
  std::int64_t candidates = 0;       // strategies whose bytes were computed
  std::int64_t simulated = 0;
};

struct SearchEffort {
  // The search stops at gains below this share of a step, which are noise of the rates. Strategies
  // that differ by less are equally fast.
  double indifference = 1e-3;
  std::vector<Lever> levers = fpdt::levers();  // those that are pulled one at a time
  bool any = false;                            // the first strategy that fits is enough
};

// InputError for a problem that no strategy solves: budgets that were left at 0, heads that no
// number of ranks divides, a pinned chunk without a whole number of rows.
void require_possible(const Problem& problem, const Pins& pins);

// InputError as of require_possible, when the pins cannot work, or the cluster has no rates.
SearchResult search(const Problem& problem, const Pins& pins = {}, const SearchEffort& effort = {});

// The first strategy found that fits, by bytes alone; empty when there is none.
std::optional<Strategy> any_fit(const Problem& problem, const Pins& pins);
Shortage shortage(const Problem& problem, const Pins& pins);

// The longest sequence for which the search finds a strategy, to 1/64 of itself or better; 0: none.
std::int64_t longest_sequence(const Problem& problem, const Pins& pins);

// One change of a lever, with its effects.
struct Worth {
  std::string lever;
  Change change;
  Usage usage;
  bool fits = false;
  std::int64_t nanoseconds = 0;
};
// The best other value of each lever of a strategy (by cost, fitting ones first).
std::vector<Worth> worth(const Problem& question, const Strategy& strategy);

// The simulated time of a step at typical rates, without placement.
std::int64_t step_nanoseconds(const Problem& problem, const Strategy& strategy,
                              const Machine& machine);
// Nanoseconds of products and attention on one rank, a lower bound on any schedule of the strategy.
std::int64_t compute_floor(const Problem& problem, const Strategy& strategy,
                           const Machine& machine);

}  // namespace fpdt
