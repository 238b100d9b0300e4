// The choices that the user has made already, and the strategies that they leave.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fpdt/plan/methods/method.h"
#include "fpdt/spec/strategy.h"

namespace fpdt {

struct Pins {
  const Method* method = nullptr;  // any
  std::optional<std::int64_t> chunk_tokens{};
  std::optional<Strategy> strategy{};  // pins all choices, the batch too
  std::int64_t batch = 1;              // sequences of a step
  std::optional<std::int64_t> data_parallel{};
  Storage gradients = Storage::f32;  // of layers, where no strategy says it
};

// How the sequences of a step are divided: data_parallel * micro_batches = batch.
struct Split {
  std::int64_t data_parallel = 1;
  std::int64_t micro_batches = 1;
  std::int64_t ring = 1;
  std::int64_t tensor = 1;
};
// The splits that the heads and the pins allow, ascending by data_parallel. A pinned method says
// what ranks share. Without one they share heads; where heads allow none, they also share queries
// in the smallest rings. Empty: the ranks of this problem cannot share the batch.
std::vector<Split> splits(const Problem& problem, const Pins& pins);

// Whether the pins leave any strategy for these ranks, this batch and this length.
bool possible(const Problem& problem, const Pins& pins);

// InputError for a problem that no strategy solves: budgets of 0, ranks that cannot share the heads
// or the batch, a pinned chunk without a whole number of rows.
void require_possible(const Problem& problem, const Pins& pins);

// The largest part of the machine whose ranks can share the batch: all of it, or whole nodes, or a
// part of one. All of it, where there is none.
ClusterSpec usable_part(const Problem& problem, const Pins& pins);

// Whether a strategy respects the pins.
bool allowed(const Problem& problem, const Pins& pins, const Strategy& strategy);

// The strategy as the pinned method demands it (Method::entered), with the pinned gradients.
Strategy entered(const Problem& problem, const Pins& pins, const Strategy& strategy);

// Whether what was made of a strategy is still in the region of the method. Where the sequence is
// too short for the region, nothing is.
bool stays(const Problem& problem, const Pins& pins, const Strategy& from, const Strategy& to);

// The chunk lengths that the pins allow, ascending.
std::vector<std::int64_t> lengths_of(const Problem& problem, const Pins& pins, const Split& split);

// `spilled`, for a batch that is divided like this.
Strategy skeleton_of(const Problem& problem, const Split& split, std::int64_t chunk_tokens);

}  // namespace fpdt
