// The numbers of one strategy that sweeps and comparisons show.
#pragma once

#include <array>
#include <optional>

#include "fpdt/plan/experts_traffic.h"
#include "fpdt/plan/plan.h"
#include "fpdt/schedule/traffic.h"

namespace fpdt {

struct Outcome {
  Strategy strategy;
  Usage usage;  // as placed
  bool fits = false;
  Binding binding = Binding::device;         // what overflows, or what holds it back
  std::array<Throughput, 3> throughput{};    // by RateEnd: slow, typical, fast
  std::array<double, 3> sequence_seconds{};  // of one sequence: a step trains one a replica
  Traffic sent;                              // by a rank in a step
  std::optional<ExpertsTraffic> experts;     // of several ranks whose model has experts
};

// Lowers, places, proves and simulates, whether it fits or not.
Outcome outcome(const Problem& problem, const Plan& plan);
Outcome outcome(const Problem& problem, const Strategy& strategy);

inline constexpr std::size_t kTypicalCase = static_cast<std::size_t>(RateEnd::typical);

}  // namespace fpdt
