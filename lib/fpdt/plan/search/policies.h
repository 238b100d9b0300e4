// How many segments a shape has, and how much of attention it stores, by a formula.
//
// The memory of inputs and outputs is that of the ring which they share (docs/memory.md, section
// 3). How many inputs a shape has room for beside all else follows from the bytes of any policy;
// where inputs and outputs have rings of their own, nearly.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fpdt/cost/machine.h"
#include "fpdt/spec/strategy.h"

namespace fpdt {

struct Policy {
  std::vector<std::int64_t> segments{1};  // as in Strategy::segments
  // Of all layers. One more than `thresholds`: nothing is stored, and a rerun keeps nothing.
  std::int64_t threshold = 0;
};

Strategy with_policy(const Problem& problem, Strategy shape, const Policy& policy);

// The policy that the formula says is fastest, by the room beside a step that stores no attention;
// none if none has room. It may need more memory than there is.
std::optional<Policy> first_policy(const Problem& problem, const Strategy& shape,
                                   const Machine& machine);

// Policies of a shape that repeat little, by the floor of products and attention: those that the
// formula says are fastest, with the least threshold that each has room for by its bytes, until the
// formula says the same again. Thresholds may be too high for all of them. `first`: first_policy.
std::vector<Policy> fast_policies(const Problem& problem, const Strategy& shape,
                                  const Machine& machine, std::optional<Policy> first);

}  // namespace fpdt
