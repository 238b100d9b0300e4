// The positions of other lanes that the next op of a lane waits for, by the edges of the schedule.
//
// HazardWaits derives the same from versions. The clock uses both in the same way: it calls `enter`
// when a lane comes to a call, and `visit` for the ops there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "fpdt/sim/steps.h"

namespace fpdt {

class EdgeWaits {
 public:
  EdgeWaits(const std::vector<BlockSteps>& steps, const CallTable& table, std::size_t lanes)
      : steps_(&steps), table_(&table), lanes_(lanes) {}

  void enter(std::size_t lane, std::int32_t call) {
    const BlockSteps& block = (*steps_)[static_cast<std::size_t>(table_->block(call))];
    Lane& here = lanes_[lane];
    here.waits = block.waits.data();
    here.bases.resize(block.bases.size());
    for (std::size_t i = 0; i < block.bases.size(); ++i) {
      here.bases[i] = table_->begin(block.bases[i], call);
    }
  }

  // Calls visitor(lane, position) for each wait of the step until it returns false.
  template <class Visitor>
  void visit(std::size_t lane, const Step& step, Visitor&& visitor) const {
    const Lane& here = lanes_[lane];
    for (std::int32_t i = step.wait_begin; i < step.wait_end; ++i) {
      const StepWait& wait = here.waits[i];
      if (!visitor(wait.lane, here.bases[static_cast<std::size_t>(wait.base)] + wait.position))
        return;
    }
  }

  // The calls in [first, result), result <= `end`, equal those `period` calls earlier as far as
  // waits can tell. Edges tell blocks, and some of them layers.
  [[nodiscard]] std::int32_t repeated(std::int32_t first, std::int32_t end,
                                      std::int32_t period) const {
    while (first < end && table_->block(first) == table_->block(first - period) &&
           waits_as(first, period)) {
      ++first;
    }
    return first;
  }

  // Does nothing: edges need no issuing of calls.
  void complete(std::int32_t /*call*/) {}
  void leave_out(std::int32_t /*call*/) {}

 private:
  // Whether edges that name a layer mean a call as far back as `period` calls earlier.
  [[nodiscard]] bool waits_as(std::int32_t call, std::int32_t period) const {
    const BlockSteps& block = (*steps_)[static_cast<std::size_t>(table_->block(call))];
    return std::all_of(block.bases.begin(), block.bases.end(), [&](const BlockSteps::Base& base) {
      if (!base.of_layer) return true;
      const std::int32_t before = table_->awaited(base, call - period);
      return table_->awaited(base, call) == (before < 0 ? -1 : before + period);
    });
  }

  struct Lane {
    const StepWait* waits = nullptr;
    std::vector<LanePosition> bases;
  };

  const std::vector<BlockSteps>* steps_;
  const CallTable* table_;
  std::vector<Lane> lanes_;
};

}  // namespace fpdt
