// The pen of the benchmarks: a schedule of one block, called again and again.
//
//   Sheet sheet(ranks);
//   Norm norm{sheet.given(Dtype::bf16, rows, width), weight, {}, sheet.result(Dtype::bf16, ...)};
//   sheet.op(LaneKind::compute, norm);
//   const VerifiedSchedule schedule = sheet.finish(calls);
//
// What an op reads is a state that somebody fills before the first step; what it writes begins a
// new version at each call. Both go round as many slots as make the working set of a training step,
// so that an op meets its operands in the cache where training would. All lanes of a training step
// exist, so that threads wait as they do there.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "fpdt/schedule/verify.h"

namespace fpdt {

// What the states of a schedule are filled with: floats in (0, 1], integers in [0, limit).
struct Contents {
  std::vector<std::int64_t> limits;  // by buffer
};

class Sheet {
 public:
  explicit Sheet(std::int64_t ranks);

  // Read.
  Operand given(Dtype dtype, std::int64_t rows, std::int64_t width,
                MemorySpace space = MemorySpace::device);
  Operand integers(std::int64_t rows, std::int64_t limit);
  // Written, a new value at each call.
  Target result(Dtype dtype, std::int64_t rows, std::int64_t width,
                MemorySpace space = MemorySpace::device);
  // Accumulated into at each call, after a fill before the first.
  Target sum(std::int64_t rows, std::int64_t width);
  // A state that each call replaces in its place: its value before, and after.
  std::pair<Operand, Target> replaced(std::int64_t elements);

  void op(LaneKind lane, Body body);

  // Edges, offsets, and the proof. `calls` of the block in each step.
  VerifiedSchedule finish(std::int32_t calls);

  [[nodiscard]] const Contents& contents() const { return contents_; }

 private:
  BufferIndex buffer(MemorySpace space, Role role, Dtype dtype,
                     const std::vector<std::int64_t>& shape);
  void touch_lanes();

  Schedule schedule_;
  Contents contents_;
  std::vector<BufferIndex> sums_, turning_;
};

// The group of all ranks, which every sheet has.
inline constexpr const char* kEverybody = "all";

}  // namespace fpdt
