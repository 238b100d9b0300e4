// The contents of the rows of every buffer, call after call. Internal to the verifier.
//
// Calls of a block mostly repeat each other: they find rows that hold the same, and so leave the
// same. The store records what a call found and left. A later call that finds the same need not be
// walked again: `repeat` leaves the same. S3xx proves that each read finds the version that it
// names, so only versions matter here, and not time.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "fpdt/schedule/expand.h"
#include "fpdt/schedule/verify/origin_rows.h"

namespace fpdt {

class OriginStore {
 public:
  explicit OriginStore(const Schedule& schedule);

  // Forgets the contents of all slots, as at the start of a call list.
  void restart();
  // Says what rows of a slot hold at the start.
  void begin_with(BufferIndex buffer, std::int64_t slot, std::int64_t row, const OriginRuns& runs);

  void begin(const Call& call);
  // Does what the last walked call of the block did, and returns true, if this one finds the same.
  bool repeat();
  void end();

  OriginRuns read(const Operand& operand);
  void write(const Operand& operand, const OriginRuns& runs);
  [[nodiscard]] std::int64_t rows_of(const Operand& operand) const {
    return operand.rows >= 0 ? operand.rows : buffer(operand.buffer).rows() - operand.row_first;
  }
  [[nodiscard]] const Buffer& buffer(BufferIndex number) const {
    return schedule_.buffers[static_cast<std::size_t>(number)];
  }

 private:
  struct Piece {
    std::int64_t first = 0;
    std::int64_t end = 0;
    std::int32_t list = 0;  // in the pool, of the rows from `first` on
    bool operator==(const Piece&) const = default;
  };
  struct Slot {
    std::int64_t version = -1;
    std::int64_t seen = -1;  // the last call that used it, and the last that changed it
    std::int64_t changed = -1;
    std::size_t change = 0;     // its place among the changes of that call
    std::vector<Piece> pieces;  // disjoint, by row
  };
  // A version, and what it holds.
  struct Held {
    BufferIndex buffer = 0;
    Version version;
    std::vector<Piece> pieces;
  };
  // Versions of a buffer that a block counts in one way.
  struct Way {
    BufferIndex buffer = 0;
    Version from;
    std::vector<std::int64_t> offsets;  // of the versions, as numbers of slots, ascending
  };
  // The contents that a call of a block found and left.
  struct Walked {
    bool once = false;
    std::vector<std::int64_t> distances;
    std::vector<Held> found;
    std::vector<Held> left;
  };

  [[nodiscard]] std::int64_t value(BufferIndex buffer, const Version& version) const {
    return expansion_.version(buffer, version);
  }
  [[nodiscard]] Walked& walked() {
    return walked_[static_cast<std::size_t>(expansion_.call().block)];
  }
  Slot& slot_at(BufferIndex buffer, std::int64_t version);
  Slot& find(const Operand& operand, Access access);
  // How far apart the versions are that the block counts in different ways, or kNeverMeet where no
  // two of them share a slot. If that stays, operands that name the same version in one call do so
  // in another, and so do those that share a slot.
  [[nodiscard]] std::vector<std::int64_t> distances() const;

  const Schedule& schedule_;
  OriginPool pool_;
  std::vector<std::size_t> first_slot_;  // of each buffer
  std::vector<Slot> slots_;
  std::vector<std::vector<std::pair<Way, Way>>> ways_;  // [block]: pairs of one buffer
  std::vector<Walked> walked_;                          // [block]
  Program program_;
  Expansion expansion_;
  std::int64_t number_ = -1;  // of the call
  bool walking_ = false;      // the call was not repeated
};

}  // namespace fpdt
