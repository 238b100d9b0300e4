// Derives lasting rows from the state table.
#include "fpdt/schedule/lasting.h"

#include <algorithm>

namespace fpdt {

StateSlots slots_of(const Schedule& schedule, const State& state) {
  const Buffer& buffer = schedule.buffers[static_cast<std::size_t>(state.buffer)];
  const std::int64_t piece = piece_elements(state);
  return {state.version, div_ceil(piece, mul(buffer.rows(), buffer.row_elements())), piece};
}

LastingRows::LastingRows(const Schedule& schedule) : rows_(schedule.buffers.size()) {
  for (const State& state : schedule.states) {
    if (state.kind == "gradient") continue;
    const Buffer& buffer = schedule.buffers[static_cast<std::size_t>(state.buffer)];
    std::vector<std::int64_t>& rows = rows_[static_cast<std::size_t>(state.buffer)];
    rows.resize(static_cast<std::size_t>(buffer.slots));
    const StateSlots held = slots_of(schedule, state);
    std::int64_t left = div_ceil(held.elements, buffer.row_elements());
    for (std::int64_t i = 0; i < held.count; ++i) {
      rows[static_cast<std::size_t>(held.first + i)] = std::min(left, buffer.rows());
      left -= buffer.rows();
    }
  }
}

}  // namespace fpdt
