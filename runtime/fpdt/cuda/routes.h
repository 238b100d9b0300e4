// The integers that Route writes, as kernels see them (op.h describes them), and what the kernels
// around them share.
#pragma once

#include <cstdint>

#include "fpdt/cuda/device.h"
#include "fpdt/cuda/frame.h"
#include "fpdt/schedule/op.h"

namespace fpdt::cuda {

// Pairs [begin, end) of all experts, or of a slice. A copy of this struct is an argument of a
// kernel.
struct PairRun {
  const std::int32_t* ends;  // of experts; nullptr: all pairs
  std::int64_t pairs;
  int first, last;  // experts of the slice

  __device__ __forceinline__ std::int64_t begin() const {
    return ends == nullptr || first == 0 ? 0 : ends[first - 1];
  }
  __device__ __forceinline__ std::int64_t end() const {
    return ends == nullptr ? pairs : ends[last];
  }
};

// A copy of this struct is an argument of a kernel.
struct Routes {
  const std::int32_t* sources;  // [pairs]
  const std::int32_t* slots;    // [pairs]
  const std::int32_t* ends;     // [experts]
  std::int64_t pairs;
  int experts, active;

  __device__ __forceinline__ std::int64_t begin(int expert) const {
    return expert == 0 ? 0 : ends[expert - 1];
  }
};

// The row of this thread's warp, where a warp serves a row.
__device__ __forceinline__ std::int64_t row_of_warp() { return global_thread() / kWarp; }

// Whether a view can hold `count` f32.
inline bool holds(const View& view, std::int64_t count) {
  return view.dtype == Dtype::f32 && view.elements >= count;
}

// The integers of an op, if `View` holds all of them.
template <class Op>
Routes routes_of(const Op& op, const View& view) {
  const std::int64_t pairs = op.rows * op.active;
  FPDT_ASSERT(view.dtype == Dtype::i32 && view.elements >= 2 * pairs + op.experts);
  FPDT_ASSERT(op.experts <= kExpertsMost && op.active <= kActiveMost && op.active <= op.experts);
  const auto* sources = elements<const std::int32_t>(view);
  return {sources,
          sources + pairs,
          sources + 2 * pairs,
          pairs,
          static_cast<int>(op.experts),
          static_cast<int>(op.active)};
}

inline PairRun run_of(const Routes& routes, const ExpertSlice& slice) {
  if (slice.count == 0) return {nullptr, routes.pairs, 0, 0};
  return {routes.ends, routes.pairs, static_cast<int>(slice.first),
          static_cast<int>(slice.first + slice.count - 1)};
}

// The rows of an op that may have routes: those of its slice, or all.
template <class Op>
PairRun run_of(const Op& op, const Frame& frame) {
  if (!op.routes.present()) return {nullptr, op.rows, 0, 0};
  return run_of(routes_of(op, frame.view(op, op.routes)), op.slice);
}

}  // namespace fpdt::cuda
