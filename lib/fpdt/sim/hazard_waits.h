// Derives what the next op of a lane waits for from versions.
//
// Calls are issued when the first lane comes to them, and forgotten when the last has left them. A
// lane that has no ops for many calls would cause all of them to be issued at once. Such a lane
// first waits only for the op that writes what its next op reads. Then its call is issued before
// those between, if neither writes a buffer that the other uses.
//
// Skipping is exact for schedules that the verifier accepts. The incomplete waits of an op follow
// from the accesses of the calls that are not complete. Suppose the versions of each buffer,
// however they are written, move by one distance from one period to the next. Then these accesses
// are the same up to that distance, and so are the waits. Versions of a buffer may also move by
// different distances, as those of layer inputs and of the gradients that take their slots do. The
// waits are the same if these are never the same versions, and either the distances are equal
// modulo the slots, so that slots are shared as they were, or no slot is shared.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "fpdt/schedule/hazards.h"
#include "fpdt/sim/steps.h"

namespace fpdt {

class HazardWaits {
 public:
  HazardWaits(const Program& program, const std::vector<Call>& calls, const CallTable& table);

  void enter(std::size_t lane, std::int32_t call) {
    here_[lane] = {call, nullptr, {}};
    if (call >= issued() + kFar) here_[lane].writer = writer(lane, call);
    if (!here_[lane].writer) arrive(lane);
  }

  // Calls visitor(lane, position) for each wait of the step until it returns false.
  template <class Visitor>
  void visit(std::size_t lane, const Step& step, Visitor&& visitor) {
    if (here_[lane].writer) {
      if (!visitor(here_[lane].writer->lane, here_[lane].writer->position)) return;
      arrive(lane);
    }
    const Hazards::Position* row =
        here_[lane].rows + static_cast<std::size_t>(step.op) * here_.size();
    for (std::size_t other = 0; other < here_.size(); ++other) {
      if (other != lane && !visitor(static_cast<std::int32_t>(other), row[other])) return;
    }
  }

  // The calls in [first, result), result <= `end`, equal those `period` calls earlier as far as
  // waits can tell.
  [[nodiscard]] std::int32_t repeated(std::int32_t first, std::int32_t end, std::int32_t period);

  // States that all calls before `call` are complete.
  void complete(std::int32_t call);
  // As `complete`, but the calls that are not yet issued were skipped, not simulated. Afterwards
  // every lane either enters its call anew or stays.
  void leave_out(std::int32_t call);

 private:
  static constexpr std::int32_t kFar = 16;
  using Rows = std::vector<Hazards::Position>;  // [op][lane]

  // A write, and the position of its op on its lane, within its block or within the step.
  struct Write {
    const PlainUse* use = nullptr;
    std::int32_t lane = 0;
    LanePosition position = 0;
  };
  struct Here {
    std::int32_t call = 0;
    const Hazards::Position* rows = nullptr;  // of the call
    std::optional<Write> writer;              // used instead of rows while the call is not issued
  };
  // The first and the last of a range.
  struct Range {
    std::int64_t low = 0, high = 0;
    void add(const Range& other);
  };
  // The versions of a buffer that a block has with one anchor.
  struct Motion {
    BufferIndex buffer = 0;
    std::int32_t anchor = 0;
    Range offsets;
    bool written = false;
  };
  // Versions of a buffer that move by one distance from period to period.
  struct Moving {
    std::int64_t distance = 0;
    bool relative = false;  // these have no ranges
    Range versions;         // of all periods
    Range slots;            // likewise, not yet modulo their number
  };

  [[nodiscard]] std::int32_t issued() const {
    return forgotten_ + static_cast<std::int32_t>(rows_.size());
  }
  void issue();
  void issue(const PlainBlock& block, const Expansion& expansion, Rows& rows);
  [[nodiscard]] bool issue_early(std::int32_t call);
  void arrive(std::size_t lane);
  [[nodiscard]] std::optional<Write> writer(std::size_t lane, std::int32_t call);
  [[nodiscard]] std::int64_t version_in(const PlainUse& use, std::int32_t call);
  const std::vector<Write>& writes_of(std::int32_t block, BufferIndex buffer);
  const std::vector<Motion>& motions(std::int32_t block);
  void find_moving(std::int32_t first, std::int32_t end, std::int32_t period);
  [[nodiscard]] bool alike(std::int32_t first, std::int32_t end, std::int32_t period);

  const Program* program_;
  const std::vector<Call>* calls_;
  const CallTable* table_;
  Expansion expansion_;
  Hazards hazards_;
  std::vector<Here> here_;  // of each lane
  std::deque<Rows> rows_;   // of the calls from forgotten_ on
  std::vector<Rows> spare_;
  std::map<std::int32_t, Rows> early_;  // of calls issued before others
  std::int32_t forgotten_ = 0;
  std::vector<std::vector<Moving>> moving_;  // of each buffer, as last asked for
  // The caches below are filled on demand.
  std::vector<std::vector<Motion>> motions_;                                   // of each block
  std::map<std::pair<std::int32_t, BufferIndex>, std::vector<Write>> writes_;  // in blocks
  std::map<BufferIndex, std::vector<std::int64_t>> bases_;  // of relative versions, at each call
};

}  // namespace fpdt
