// A program in the form that the clock walks: the ops of every block lane by lane, with their work
// and their waits; and where every call of a list begins on every lane.
//
// Work is counted in ticks of a lane that runs alone, times kWorkPerTick, so that a slower pace
// needs no fractions.
#pragma once

#include <cstdint>
#include <vector>

#include "fpdt/schedule/expand.h"

namespace fpdt {

// An op that must be complete: the one `position` ops after the lane's position at the start of the
// call that `base` names.
struct StepWait {
  std::int32_t base = 0;  // index into BlockSteps::bases
  std::int32_t lane = 0;
  std::int32_t position = 0;
};

struct Step {
  std::int64_t work = 0;
  std::int32_t op = 0;    // in its block
  std::int32_t kind = 0;  // index of its body in kBodyNames
  std::int32_t wait_begin = 0;
  std::int32_t wait_end = 0;
};

struct BlockSteps {
  struct Base {
    std::int32_t block = 0;
    std::int32_t calls_back = 0;
    bool of_layer = false;
    std::int32_t lane = 0;
    bool operator==(const Base&) const = default;
  };
  std::vector<std::vector<Step>> lanes;
  std::vector<StepWait> waits;
  std::vector<Base> bases;
};

// `ticks` of every op, [block][op]: at least 1, at most kMostTicks.
std::vector<BlockSteps> steps_of(const Program& program,
                                 const std::vector<std::vector<std::int64_t>>& ticks);

// Where calls begin: how many ops every lane has issued before each.
class CallTable {
 public:
  CallTable(const Program& program, const std::vector<Call>& calls);

  [[nodiscard]] std::int32_t size() const { return static_cast<std::int32_t>(blocks_.size()); }
  [[nodiscard]] std::int32_t block(std::int32_t call) const { return blocks_[at(call)]; }
  [[nodiscard]] LanePosition begin(std::int32_t call, std::int32_t lane) const {
    return begins_[at(call) * lanes_ + at(lane)];
  }
  // The call that the op at a position of a lane belongs to.
  [[nodiscard]] std::int32_t call_at(std::int32_t lane, LanePosition position) const;
  // The call that `base` names, seen from the running `call`; -1: there is none.
  [[nodiscard]] std::int32_t awaited(const BlockSteps::Base& base, std::int32_t call) const;
  // Where it began on its lane; kNever when there is none.
  [[nodiscard]] LanePosition begin(const BlockSteps::Base& base, std::int32_t call) const {
    const std::int32_t earlier = awaited(base, call);
    return earlier < 0 ? kNever : begin(earlier, base.lane);
  }

  static constexpr LanePosition kNever = INT64_MIN / 2;

 private:
  static std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

  std::size_t lanes_;
  std::vector<std::int32_t> blocks_, layers_;        // of each call
  std::vector<std::vector<std::int32_t>> calls_of_;  // of each block
  std::vector<LanePosition> begins_;                 // [call][lane], and the end of the last call
};

}  // namespace fpdt
