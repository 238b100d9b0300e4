// Turns texts into operands, and names into indices.
#include "tiny.h"

#include <stdexcept>

#include "fpdt/schedule/text.h"

namespace fpdt::test {

Tiny& Tiny::buffer(std::string name, std::int64_t slots, std::int64_t rows, Role role) {
  Buffer buffer;
  buffer.name = std::move(name);
  buffer.role = role;
  buffer.shape = {rows, 1};
  buffer.slots = slots;
  schedule.buffers.push_back(std::move(buffer));
  return *this;
}

Tiny& Tiny::offset(std::int64_t bytes) {
  schedule.buffers.back().offset = bytes;
  return *this;
}

Tiny& Tiny::block(std::string name, std::vector<std::pair<BufferIndex, std::int64_t>> advance) {
  schedule.blocks.push_back({std::move(name), std::move(advance), {}});
  return *this;
}

Tiny& Tiny::fill(std::string name, std::int32_t lane, std::string_view text) {
  schedule.blocks.back().ops.push_back(
      {std::move(name), {LaneKind::compute, lane}, Fill{target(text), 0}, {}});
  return *this;
}

Tiny& Tiny::copy(std::string name, std::int32_t lane, std::string_view source,
                 std::string_view text) {
  schedule.blocks.back().ops.push_back(
      {std::move(name), {LaneKind::compute, lane}, Copy{target(source).operand, target(text)}, {}});
  return *this;
}

Tiny& Tiny::after(std::string_view text) {
  const auto parsed = parse_after(text);
  const std::int32_t block = parsed.value().block.empty()
                                 ? static_cast<std::int32_t>(schedule.blocks.size()) - 1
                                 : block_index(parsed->block);
  const std::vector<Op>& ops = schedule.blocks[static_cast<std::size_t>(block)].ops;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].name != parsed->op) continue;
    schedule.blocks.back().ops.back().after.push_back(
        {block, static_cast<std::int32_t>(i), parsed->calls_back, parsed->of_layer});
    return *this;
  }
  throw std::out_of_range(std::string(text));
}

Tiny& Tiny::call(std::string_view block, std::int32_t layer) {
  schedule.train.push_back({block_index(block), layer, 0, 0});
  return *this;
}

Target Tiny::target(std::string_view text) const {
  const auto parsed = parse_operand(text);
  for (std::size_t i = 0; i < schedule.buffers.size(); ++i) {
    if (schedule.buffers[i].name != parsed.value().buffer) continue;
    return {{static_cast<BufferIndex>(i), parsed->version, parsed->row_first, parsed->rows},
            parsed->accumulate};
  }
  throw std::out_of_range(std::string(text));
}

std::int32_t Tiny::block_index(std::string_view name) const {
  for (std::size_t i = 0; i < schedule.blocks.size(); ++i) {
    if (schedule.blocks[i].name == name) return static_cast<std::int32_t>(i);
  }
  throw std::out_of_range(std::string(name));
}

}  // namespace fpdt::test
