// Derives what an op waits for from versions and issue order: a read waits for the writes of its
// value, an accumulate for the earlier ones of its rows, a write for every access of the version
// that its slot held before.
//
// Positions count the ops of a lane within the step. Lanes are FIFO, so an op waits for one
// position per lane. `depend` turns these requirements into edges; the simulator of candidates uses
// them directly, for schedules that have no edges yet.
#pragma once

#include <cstdint>
#include <vector>

#include "fpdt/schedule/expand.h"

namespace fpdt {

class Hazards {
 public:
  using Position = std::int32_t;  // of an op on its lane within the step; -1 before the first

  // The program must outlive its hazards.
  explicit Hazards(const Program& program);

  // Issues the next op of the expansion's running call. Sets required[lane] for every lane to the
  // latest position that the op waits for, its own lane's included, which lane order implies.
  void issue(const PlainOp& op, const Expansion& expansion, Position* required);

  // A version that the last op issued uses, and the number of its slot among those of all buffers.
  struct Touched {
    std::int64_t version = 0;
    std::size_t slot = 0;
  };
  // In the order of the op's uses.
  [[nodiscard]] const std::vector<Touched>& touched() const { return touched_; }
  [[nodiscard]] std::size_t slots() const { return slots_.size(); }

  // Calls are left out here. Their accesses count as complete; a version that began in them starts
  // with the first op that touches it.
  void leave_out() { gaps_ = true; }

 private:
  // Rows last written or accumulated by one op.
  struct Piece {
    std::int64_t first = 0;
    std::int64_t end = 0;
    std::int32_t lane = 0;
    Position position = -1;
  };
  // Most versions are written whole: one piece and no allocation.
  struct Slot {
    std::int64_t version = -1;
    Piece piece;                // empty when no op wrote the slot
    std::vector<Piece> pieces;  // all of them by rows, in place of `piece`, when there are several
  };
  struct Ring {
    std::size_t first_slot = 0;
    std::int64_t slots = 1;
  };

  void require(const PlainUse& use, std::int64_t version, std::size_t slot,
               Position* required) const;
  void touch(const PlainUse& use, std::int64_t version, std::size_t slot, std::int32_t lane,
             Position position);
  static void overwrite(Slot& slot, const Piece& piece);

  std::size_t lanes_;
  std::vector<Ring> rings_;  // of every buffer
  std::vector<Slot> slots_;
  std::vector<Position> last_;    // [slot][lane], latest access
  std::vector<Position> before_;  // [slot][lane], latest access of the previous version
  bool gaps_ = false;
  std::vector<Touched> touched_;
};

}  // namespace fpdt
