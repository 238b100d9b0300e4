// What a rank holds of an entry of the state table: a piece of a tensor, or of a part of it.
//
// A piece keeps the order of the tensor. So the elements of any range of the tensor that lie in it
// follow each other there, into however many runs the cut divides them: one read or write moves
// them all.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "fpdt/schedule/schedule.h"

namespace fpdt {

// Elements [first, end) of a tensor or of a piece.
struct ElementRange {
  std::int64_t first = 0, end = 0;
  bool operator==(const ElementRange&) const = default;
};

// Elements that follow each other in the tensor and in the piece.
struct StateRun {
  std::int64_t first = 0;  // in the tensor
  std::int64_t at = 0;     // in the piece
  std::int64_t elements = 0;
};

// Where an element of a piece is stored, and how many follow in the same slot, with it.
struct StatePlace {
  std::int64_t slot = 0;
  std::int64_t at = 0;  // element within the slot
  std::int64_t left = 0;
};

class StatePiece {
 public:
  // Precondition: the entry fits its buffer, and the rank is one of the schedule's.
  StatePiece(const Schedule& schedule, const State& state, std::int64_t rank);

  [[nodiscard]] std::int64_t rank() const { return rank_; }
  [[nodiscard]] BufferIndex buffer() const { return buffer_; }
  [[nodiscard]] Dtype dtype() const { return dtype_; }
  // Elements of the tensor; padding fills the slots after them, up to `room`.
  [[nodiscard]] std::int64_t elements() const { return elements_; }
  [[nodiscard]] std::int64_t room() const { return room_; }

  // The elements of the piece that a range of the tensor contains.
  [[nodiscard]] ElementRange within(const ElementRange& tensor) const {
    return {before(tensor.first), before(tensor.end)};
  }
  // The longest run from an element of the piece on. Precondition: 0 <= at < elements().
  [[nodiscard]] StateRun run_at(std::int64_t at) const;
  // Calls visit(run) for the runs of a range of the piece. Precondition: range.end <= elements().
  template <class Visit>
  void each_run(const ElementRange& range, const Visit& visit) const {
    for (std::int64_t at = range.first; at < range.end;) {
      StateRun run = run_at(at);
      run.elements = std::min(run.elements, range.end - at);
      visit(run);
      at += run.elements;
    }
  }
  // Precondition: 0 <= at < room().
  [[nodiscard]] StatePlace place_at(std::int64_t at) const {
    return {first_slot_ + at / slot_elements_, at % slot_elements_,
            slot_elements_ - at % slot_elements_};
  }

 private:
  [[nodiscard]] std::int64_t before(std::int64_t first) const;

  std::int64_t rank_;
  BufferIndex buffer_;
  Dtype dtype_;
  std::int64_t first_slot_, slot_elements_, room_;
  // The tensor consists of rows, which hold an index of each axis before the one that is cut. A row
  // of the part consists of runs of the tensor's row. A tensor that is not cut is one row.
  std::int64_t row_, part_row_;  // elements
  std::vector<StateRun> runs_;   // of the first row of the part, which `at` counts
  std::int64_t begin_;           // of the piece in the part
  std::int64_t elements_;
};

// Elements of the whole tensor.
std::int64_t tensor_elements(const State& state);

}  // namespace fpdt
