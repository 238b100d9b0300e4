// What the next op of a lane waits for, as positions of other lanes: by the edges of the schedule,
// or by what versions demand. Both serve the clock in the same way: `enter` when a lane comes to a
// call, `visit` for one of its ops there.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "fpdt/schedule/hazards.h"
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

 private:
  struct Lane {
    const StepWait* waits = nullptr;
    std::vector<LanePosition> bases;
  };

  const std::vector<BlockSteps>* steps_;
  const CallTable* table_;
  std::vector<Lane> lanes_;
};

// Calls are issued when the first lane comes to them, and forgotten when the last has left them.
class HazardWaits {
 public:
  HazardWaits(const Program& program, const std::vector<Call>& calls);

  void enter(std::size_t lane, std::int32_t call) {
    while (issued() <= call) issue();
    rows_[lane] = calls_waits_[static_cast<std::size_t>(call - forgotten_)].data();
  }
  // No lane asks for calls before `call` any more.
  void forget(std::int32_t call);

  template <class Visitor>
  void visit(std::size_t lane, const Step& step, Visitor&& visitor) const {
    const std::size_t lanes = rows_.size();
    const Hazards::Position* row = rows_[lane] + static_cast<std::size_t>(step.op) * lanes;
    for (std::size_t other = 0; other < lanes; ++other) {
      if (other != lane && !visitor(static_cast<std::int32_t>(other), row[other])) return;
    }
  }

 private:
  using Rows = std::vector<Hazards::Position>;  // [op][lane]

  [[nodiscard]] std::int32_t issued() const {
    return forgotten_ + static_cast<std::int32_t>(calls_waits_.size());
  }
  void issue();

  const Program* program_;
  const std::vector<Call>* calls_;
  Expansion expansion_;
  Hazards hazards_;
  std::vector<const Hazards::Position*> rows_;  // of each lane's call
  std::deque<Rows> calls_waits_;                // of the calls from forgotten_ on
  std::vector<Rows> spare_;
  std::int32_t forgotten_ = 0;
};

}  // namespace fpdt
