// Maps elements of a piece to those of the tensor, and back.
#include "fpdt/train/state_piece.h"

#include "fpdt/base/assert.h"
#include "fpdt/base/math.h"
#include "fpdt/schedule/lasting.h"

namespace fpdt {

StatePiece::StatePiece(const Schedule& schedule, const State& state, std::int64_t rank)
    : rank_(rank), buffer_(state.buffer) {
  const Buffer& buffer = schedule.buffers[index(buffer_)];
  const StateSlots held = slots_of(schedule, state);
  dtype_ = buffer.dtype;
  first_slot_ = held.first;
  slot_elements_ = mul(buffer.rows(), buffer.row_elements());
  room_ = mul(held.count, slot_elements_);
  const std::int64_t part = part_elements(state);
  begin_ = mul(state.shard.at(rank), held.elements);
  elements_ = std::clamp<std::int64_t>(part - begin_, 0, held.elements);
  row_ = part_row_ = tensor_elements(state);
  runs_ = {{0, 0, row_}};
  if (part == row_) return;
  const TensorCut& cut = state.cut;
  for (std::int64_t axis = 0; axis < cut.axis; ++axis) {
    row_ = div_exact(row_, state.shape[index(axis)]);
  }
  const std::int64_t inner = div_exact(row_, state.shape[index(cut.axis)]);
  runs_.clear();
  part_row_ = 0;
  std::int64_t first = mul(cut.first, inner);
  for (const std::int64_t section : cut.sections) {
    const std::int64_t elements = mul(div_exact(section, cut.ways), inner);
    runs_.push_back({first + mul(cut.part.at(rank), elements), part_row_, elements});
    first += mul(section, inner);
    part_row_ += elements;
  }
}

// The elements of the piece that come before an element of the tensor.
std::int64_t StatePiece::before(std::int64_t first) const {
  const std::int64_t in_row = first % row_;
  std::int64_t part = mul(first / row_, part_row_);
  for (const StateRun& run : runs_) {
    part += std::clamp<std::int64_t>(in_row - run.first, 0, run.elements);
  }
  return std::clamp<std::int64_t>(part - begin_, 0, elements_);
}

StateRun StatePiece::run_at(std::int64_t at) const {
  FPDT_ASSERT(at >= 0 && at < elements_);
  const std::int64_t row = (begin_ + at) / part_row_;
  const std::int64_t in_row = (begin_ + at) % part_row_;
  const auto run = std::find_if(runs_.begin(), runs_.end(), [&](const StateRun& one) {
    return in_row < one.at + one.elements;
  });
  const std::int64_t skipped = in_row - run->at;
  return {mul(row, row_) + run->first + skipped, at,
          std::min(run->elements - skipped, elements_ - at)};
}

std::int64_t tensor_elements(const State& state) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : state.shape) elements = mul(elements, extent);
  return elements;
}

}  // namespace fpdt
