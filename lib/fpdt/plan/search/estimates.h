// Times of steps for a search, which asks for thousands of them.
//
// How long products and attention take has a closed form (floor.h). How much longer the step takes
// depends on its shape (chunks, tiles, order, what is prefetched), and hardly on what is stored or
// repeated. So a shape is simulated once, with nothing repeated, and its share of waiting is that
// of all strategies of this shape. Layers that store everything wait for more copies, so they are
// simulated apart.
//
// Row u of attention has u tiles, so the time of a step is a quadratic in the number of chunks, or
// linear if all layers have windows. Where there are many chunks, three steps with few of them say
// what it is. Each hop of keys around a ring takes as long as another, so two short rings say what
// a long one takes.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "fpdt/cost/machine.h"
#include "fpdt/spec/strategy.h"

namespace fpdt {

// They do not depend on budgets, so all passes of a search share them.
class Estimates {
 public:
  explicit Estimates(const Problem& problem)
      : problem_(problem), machine_(problem.cluster, RateEnd::typical) {}

  [[nodiscard]] const Machine& machine() const { return machine_; }
  [[nodiscard]] std::int64_t simulated() const { return simulated_; }

  // Nanoseconds of a step, by simulation if it has few chunks and no segments. Of 360 plans of
  // thirty searches, 345 were within 0.5 % of their simulation; the worst was off by 8 % (ADR
  // 0029).
  std::int64_t nanoseconds(const Strategy& strategy);
  // Whether that is a simulation of the strategy itself. Edges make a step no faster than that, so
  // the plan takes as long or longer, but for rounding and long tiles of the loss.
  [[nodiscard]] bool simulates(const Strategy& strategy) const;

 private:
  std::int64_t simulate(const Problem& problem, const Strategy& strategy);
  std::int64_t simulate_whole(const Problem& problem, const Strategy& strategy);
  std::optional<std::int64_t> many_hops(const Problem& problem, const Strategy& strategy,
                                        const Geometry& shape);
  double many_chunks(const Strategy& strategy, const Geometry& shape);
  // The simulated time of a shape, over its floor.
  double stretch(const Strategy& shape, bool few);
  // The same, where a number of layers store everything.
  double stretch_of(const Strategy& shape, std::int64_t everything, bool few);
  [[nodiscard]] double floor(const Strategy& strategy) const;
  double loss(const Strategy& strategy);

  using Loss = std::array<std::int64_t, 5>;  // tiles and rows

  const Problem& problem_;
  Machine machine_;
  std::int64_t simulated_ = 0;
  std::vector<std::pair<Strategy, double>> known_;  // stretches of shapes
  std::map<Loss, double> losses_;                   // nanoseconds of their tiles of the loss
};

}  // namespace fpdt
