// Writes the schedules of the benchmarks: one block, called again and again.
//
//   Sheet sheet(ranks, working_set);
//   Norm norm{sheet.given(Dtype::bf16, rows, width), weight, {}, sheet.result(Dtype::bf16, ...)};
//   sheet.op(LaneKind::compute, norm);
//   const VerifiedSchedule schedule = sheet.finish();
//
// An op reads states, which are filled before the first step, and each call begins a new version of
// what the op writes. Both cycle through the slots of a working set as large as that of a training
// step, so that caches hold no more of an op's operands than in training. All lanes of a training
// step exist, so that threads wait as they do there.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "fpdt/schedule/verify.h"

namespace fpdt {

// The values that a state gets before the first step.
struct Filling {
  std::int64_t limit = 0;  // integers in [0, limit)
  bool noise = false;      // floats in [-1, 1], else in (0, 1]
};
using Contents = std::vector<Filling>;  // by buffer

class Sheet {
 public:
  // Operands cycle through as many slots as fit into `working_set` together, at least one.
  // Ranks are numbered node by node, with as many on each.
  Sheet(std::int64_t ranks, Bytes working_set, std::int64_t nodes = 1);

  // An operand that the op reads.
  Operand given(Dtype dtype, std::int64_t rows, std::int64_t width,
                MemorySpace space = MemorySpace::device);
  // An operand with values of either sign, as activations have. They make a GPU draw more power and
  // slow down.
  Operand noise(Dtype dtype, std::int64_t rows, std::int64_t width);
  Operand integers(std::int64_t rows, std::int64_t limit);
  // Scratch for one op. All scratch shares one buffer, as large as the largest request.
  Operand scratch(Bytes bytes);
  // A target that gets a new version at each call.
  Target result(Dtype dtype, std::int64_t rows, std::int64_t width,
                MemorySpace space = MemorySpace::device);
  // A target that each call adds to. It is filled before the first call.
  Target sum(std::int64_t rows, std::int64_t width, Dtype dtype = Dtype::f32);
  // A state that each call replaces in place: the operand with its old version, and the target.
  std::pair<Operand, Target> replaced(std::int64_t elements);

  void op(LaneKind lane, Body body);

  // Sets edges and offsets, and verifies the schedule. It calls a block that begins the sums and
  // touches every lane, then kCalls times the block of ops. A step may end earlier.
  VerifiedSchedule finish();
  static constexpr std::int32_t kCalls = 400;

  [[nodiscard]] const Contents& contents() const { return contents_; }

 private:
  BufferIndex buffer(MemorySpace space, Role role, Dtype dtype,
                     const std::vector<std::int64_t>& shape);
  void touch_lanes();

  Schedule schedule_;
  Bytes working_set_;
  Contents contents_;
  std::vector<BufferIndex> sums_, turning_;
  BufferIndex scratch_ = -1;
  std::size_t scratch_advance_ = 0;  // its index among those of the block
};

// The groups of a sheet: all ranks, those of a node, and one of each node.
inline constexpr const char* kEverybody = "all";
inline constexpr const char* kNode = "node";
inline constexpr const char* kAcross = "across";

}  // namespace fpdt
