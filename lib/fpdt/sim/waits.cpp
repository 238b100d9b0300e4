// Issue of calls for the waits that versions demand.
#include "fpdt/sim/waits.h"

#include <utility>

namespace fpdt {

HazardWaits::HazardWaits(const Program& program, const std::vector<Call>& calls)
    : program_(&program),
      calls_(&calls),
      expansion_(program),
      hazards_(program),
      rows_(program.lanes.size(), nullptr) {}

void HazardWaits::issue() {
  const Call& call = (*calls_)[static_cast<std::size_t>(issued())];
  const PlainBlock& block = program_->blocks[static_cast<std::size_t>(call.block)];
  expansion_.begin(call);
  Rows rows;
  if (!spare_.empty()) {
    rows = std::move(spare_.back());
    spare_.pop_back();
  }
  const std::size_t lanes = rows_.size();
  rows.resize(block.ops.size() * lanes);
  for (std::size_t i = 0; i < block.ops.size(); ++i) {
    hazards_.issue(block.ops[i], expansion_, rows.data() + i * lanes);
  }
  calls_waits_.push_back(std::move(rows));
}

void HazardWaits::forget(std::int32_t call) {
  for (; forgotten_ < call && !calls_waits_.empty(); ++forgotten_) {
    spare_.push_back(std::move(calls_waits_.front()));
    calls_waits_.pop_front();
  }
}

}  // namespace fpdt
