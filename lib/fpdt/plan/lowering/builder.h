// Writes a schedule for a lowering: buffers, then blocks of ops in program order, then calls.
//
// Inside a block, `next` begins the next version of a ring and `advance` states how far a relative
// base moves at each call. The builder never writes edges (see schedule/depend.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/schedule/schedule.h"

namespace fpdt {

class Builder {
 public:
  Schedule schedule;

  // Returns the buffer of this name. A new one is made from `buffer`; an existing one keeps the
  // larger number of slots.
  BufferIndex buffer(const Buffer& buffer);
  [[nodiscard]] const Buffer& at(BufferIndex buffer) const;

  void begin_block(std::string name);
  void end_block();

  // Begins a new version of a ring in this block; rows < 0: the whole slot.
  Operand next(BufferIndex ring, std::int64_t rows = -1);
  // Versions begun in this block so far.
  [[nodiscard]] std::int64_t begun(BufferIndex ring) const;
  // For buffers whose versions the caller numbers.
  void advance(BufferIndex buffer, std::int64_t versions);

  void emit(std::string name, LaneKind lane, Body body);

  // Appends a call of the named block.
  void call(std::vector<Call>& calls, std::string_view block, std::int64_t layer = 0,
            std::int64_t micro_batch = 0, std::int64_t segment = 0) const;

 private:
  std::vector<std::int64_t> begun_;  // per buffer, in the open block
};

}  // namespace fpdt
