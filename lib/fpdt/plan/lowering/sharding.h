// How ranks share parameters, gradients and states: the stages of ZeRO (Rajbhandari et al.,
// arXiv 1910.02054, section 5).
//
// Every tensor lies flat and zero-padded to one piece a rank. The gradients of a step are summed in
// these pieces at every stage, so that all stages with one micro-batch give the same bits.
#pragma once

#include <cstdint>

#include "fpdt/base/math.h"
#include "fpdt/spec/strategy.h"

namespace fpdt {

struct Sharding {
  std::int64_t ranks = 1;
  std::int64_t stage = 3;

  Sharding(const Problem& problem, const Strategy& strategy)
      : ranks(problem.ranks()), stage(strategy.zero) {}

  // One rank shares nothing: its piece is the tensor.
  [[nodiscard]] bool several() const { return ranks > 1; }
  // Parameters lie in pieces, and are gathered before their use.
  [[nodiscard]] bool gathers_parameters() const { return several() && stage == 3; }
  // Each rank updates its piece of the parameters and then gives it to all others.
  [[nodiscard]] bool spreads_updates() const { return several() && (stage == 1 || stage == 2); }
  // Whole gradients collect on each rank and are summed once a step. At other stages those of a
  // layer are summed as soon as they are complete.
  [[nodiscard]] bool collects_gradients() const { return several() && stage <= 1; }
  // Every rank has all states and makes every update.
  [[nodiscard]] bool repeats_updates() const { return several() && stage == 0; }

  // Elements of a tensor: one piece, and all pieces with their padding.
  [[nodiscard]] std::int64_t piece(const TensorSpec& tensor) const {
    return div_ceil(tensor.elements(), ranks);
  }
  [[nodiscard]] std::int64_t whole(const TensorSpec& tensor) const {
    return mul(piece(tensor), ranks);
  }
  // Elements of parameters, and of states, that a rank holds from step to step. Parameters have
  // the padding of the pieces that they are gathered from.
  [[nodiscard]] std::int64_t parameters(const TensorSpec& tensor) const {
    return spreads_updates() ? whole(tensor) : states(tensor);
  }
  [[nodiscard]] std::int64_t states(const TensorSpec& tensor) const {
    return repeats_updates() ? tensor.elements() : piece(tensor);
  }
};

}  // namespace fpdt
