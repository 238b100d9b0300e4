// The integers that Route writes (op.h), as ops after it see them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fpdt/cpu/kernels_common.h"

namespace fpdt::cpu {

struct Routes {
  template <class Op>
  Routes(const Op& op, const Frame& frame)
      : pairs(op.rows * op.active),
        experts(op.experts),
        sources(integers(frame.view(op, op.routes), 0, 2 * pairs + op.experts)),
        slots(sources + pairs),
        ends(slots + pairs) {}
  [[nodiscard]] Range pairs_of(std::int64_t expert) const {
    return {expert == 0 ? 0 : ends[expert - 1], ends[expert]};
  }
  // Those of all experts, or of a slice.
  [[nodiscard]] Range pairs_of(const ExpertSlice& slice) const {
    if (slice.count == 0) return {0, pairs};
    return {pairs_of(slice.first).first, pairs_of(slice.first + slice.count - 1).end};
  }
  [[nodiscard]] std::int64_t expert_of(std::int64_t entry) const {
    return std::upper_bound(ends, ends + experts, slots[entry]) - ends;
  }
  std::int64_t pairs, experts;
  const std::int32_t *sources, *slots, *ends;
};

// The rows of an op that may have routes: those of its slice, or all.
template <class Op>
Range rows_of(const Op& op, const Frame& frame) {
  return op.routes.present() ? Routes(op, frame).pairs_of(op.slice) : Range{0, op.rows};
}

}  // namespace fpdt::cpu
