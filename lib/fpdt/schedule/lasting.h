// Which rows carry values from one step to the next: those of parameters, masters and moments in
// the state table. All other rows, gradients included, begin a step empty.
#pragma once

#include <vector>

#include "fpdt/schedule/schedule.h"

namespace fpdt {

// The slots, from `first` on, that hold an entry's piece. Precondition: the entry fits its buffer.
struct StateSlots {
  std::int64_t first = 0;
  std::int64_t count = 1;
  std::int64_t elements = 0;  // of the piece
};
StateSlots slots_of(const Schedule& schedule, const State& state);

class LastingRows {
 public:
  explicit LastingRows(const Schedule& schedule);

  // Number of rows of a slot that last, counted from the first.
  [[nodiscard]] std::int64_t of(BufferIndex buffer, std::int64_t slot) const {
    const std::vector<std::int64_t>& rows = rows_[static_cast<std::size_t>(buffer)];
    return rows.empty() ? 0 : rows[static_cast<std::size_t>(slot)];
  }
  // Whether any row of the buffer lasts.
  [[nodiscard]] bool any(BufferIndex buffer) const {
    return !rows_[static_cast<std::size_t>(buffer)].empty();
  }

 private:
  std::vector<std::vector<std::int64_t>> rows_;  // [buffer][slot]; empty: no row lasts
};

}  // namespace fpdt
