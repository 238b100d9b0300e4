// Appends buffers, blocks, ops and calls to a schedule.
#include "fpdt/plan/lowering/builder.h"

#include <algorithm>

#include "fpdt/base/assert.h"

namespace fpdt {

BufferId Builder::declare(Buffer buffer) {
  declared_.push_back(std::move(buffer));
  number_.push_back(-1);
  return static_cast<BufferId>(declared_.size() - 1);
}

BufferIndex Builder::use(BufferId id) {
  BufferIndex& number = number_[index(id)];
  if (number < 0) {
    number = static_cast<BufferIndex>(used_.size());
    used_.push_back(id);
    begun_.push_back(0);
  }
  return number;
}

Schedule& Builder::finish() {
  for (const BufferId id : used_) schedule.buffers.push_back(declared_[index(id)]);
  return schedule;
}

const Buffer& Builder::at(BufferIndex buffer) const {
  return declared_[index(used_[index(buffer)])];
}

void Builder::begin_block(std::string name) {
  schedule.blocks.push_back({std::move(name), {}, {}});
  if (sketch != nullptr) sketch->begin_block();
  std::fill(begun_.begin(), begun_.end(), 0);
}

void Builder::end_block() {
  Block& block = schedule.blocks.back();
  for (std::size_t i = 0; i < begun_.size(); ++i) {
    if (begun_[i] > 0) block.advance.push_back({static_cast<BufferIndex>(i), begun_[i]});
  }
}

std::string Builder::filled(std::string_view text, std::initializer_list<NamePart> parts) {
  std::string made;
  for (const NamePart& part : parts) {
    const std::size_t place = text.find("{}");
    FPDT_ASSERT(place != text.npos);
    made.append(text, 0, place);
    if (part.is_number) {
      made += std::to_string(part.number);
    } else {
      made += part.word;
    }
    text.remove_prefix(place + 2);
  }
  return made.append(text);
}

void Builder::emit_uses(LaneKind lane, const Body& body) {
  sketch->add({lane, 0});
  for_each_operand(body, [&](std::string_view, const Operand& operand, Access access) {
    sketch->use(operand, access, at(operand.buffer).rows());
  });
}

Operand Builder::next(BufferIndex ring, std::int64_t rows) {
  const std::int64_t n = begun_[index(ring)]++;
  const bool whole = rows < 0 || rows == at(ring).rows();
  return {ring, Version::plus(n), 0, whole ? -1 : rows};
}

std::int64_t Builder::begun(BufferIndex ring) const { return begun_[index(ring)]; }

void Builder::advance(BufferIndex buffer, std::int64_t versions) {
  begun_[index(buffer)] = std::max(begun_[index(buffer)], versions);
}

void Builder::call(std::vector<Call>& calls, std::string_view block, std::int64_t layer,
                   std::int64_t micro_batch, const LayerPlace& at) const {
  for (std::size_t i = 0; i < schedule.blocks.size(); ++i) {
    if (schedule.blocks[i].name != block) continue;
    calls.push_back({static_cast<std::int32_t>(i), static_cast<std::int32_t>(layer),
                     static_cast<std::int32_t>(micro_batch), static_cast<std::int32_t>(at.segment),
                     static_cast<std::int32_t>(at.place)});
    return;
  }
  FPDT_ASSERT(false);
}

}  // namespace fpdt
