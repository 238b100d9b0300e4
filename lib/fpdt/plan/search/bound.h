// What no strategy does better, so that an answer can say how good it is.
//
// All devices and hosts of the cluster are one pool that stores what backward needs, and all
// devices together are one that computes, at the rates of the largest tiles, without waiting. Of a
// row of a layer, three things may be stored: the layer's input, or else the layers before it are
// repeated; attention output and lse, or else attention is repeated; and all that backward reads,
// or else the products before and after attention are repeated. What is best for each row follows
// from a price of memory (Lagrange; Everett, Operations Research 11, 1963): with any price p >= 0,
//
//   step >= once + sum over rows of min over choices (repeat + p * bytes) - p * memory,
//
// and the price that makes the right side largest gives the bound. Parameters, gradients and the
// optimizer's states, and the memory outside the arenas, are taken from the pool. Collectives are
// free, and so are copies, but for those of optimizer states that do not fit the devices.
#pragma once

#include "fpdt/base/units.h"
#include "fpdt/cost/machine.h"
#include "fpdt/spec/strategy.h"

namespace fpdt {

struct Bound {
  double step_seconds = 0;  // no step that trains the sequences is shorter
  // What arenas hold at least, and what the budgets leave for them at most.
  struct Memory {
    Bytes need, have;
  };
  // Of one device: parameters and gradients of embedding and head.
  Memory device;
  // Of all devices and hosts when backward begins: also the optimizer's states, and the inputs that
  // the fewest segments need.
  Memory all;
  [[nodiscard]] bool none_fits() const { return device.need > device.have || all.need > all.have; }
};

// The bound of all strategies with this storage, and gradients of layers in this format.
// Precondition: check(problem.model) finds nothing.
Bound bound_of(const Problem& problem, Storage storage, Storage gradients, std::int64_t sequences,
               const Machine& machine);

}  // namespace fpdt
