// Sums bytes over a schedule's buffers; tests compare the result with the closed form.
#include "fpdt/plan/bytes.h"

#include <set>

namespace fpdt {

BlockBytes sum_of(const Schedule& schedule) {
  BlockBytes bytes;
  for (const Block& block : schedule.blocks) {
    std::set<BufferIndex> touched;
    for (const Op& op : block.ops) {
      for (const Use& use : operands(op.body)) touched.insert(use.operand.buffer);
    }
    for (const BufferIndex index : touched) {
      const Buffer& buffer = schedule.buffers[static_cast<std::size_t>(index)];
      bytes[{block.name, buffer.space, buffer.category}] += buffer.bytes();
    }
  }
  return bytes;
}

}  // namespace fpdt
