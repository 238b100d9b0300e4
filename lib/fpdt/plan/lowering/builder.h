// Writes a schedule for a lowering: buffers, then blocks of ops in program order, then calls.
//
// Inside a block, `next` begins the next version of a ring and `advance` states how far a relative
// base moves at each call. The builder never writes edges (see schedule/depend.h).
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fpdt/schedule/expand.h"
#include "fpdt/schedule/schedule.h"
#include "fpdt/spec/layer_places.h"
#include "fpdt/spec/strategy.h"

namespace fpdt {

// How parameters and activations are stored.
inline Dtype storage_type(const Strategy& strategy) {
  return strategy.storage == Storage::f32 ? Dtype::f32 : Dtype::bf16;
}

// Numbers the buffers that parts of a lowering declare. A schedule has those of them that it uses.
using BufferId = std::int32_t;

// A word or a number in the name of an op.
struct NamePart {
  explicit NamePart(std::string_view of) : word(of) {}
  explicit NamePart(std::integral auto of) : number(of), is_number(true) {}

  std::string_view word;
  std::int64_t number = 0;
  bool is_number = false;
};

// Of what a micro-batch has once: gathers of global tensors, sums of their gradients.
inline const Version kMicroBatch = Version::at(0, 0, 1);

class Builder {
 public:
  Schedule schedule;      // has its buffers when it is finished
  bool names_ops = true;  // where somebody sees them
  // If set, ops leave what they use there, and no block has any.
  ProgramBuilder* sketch = nullptr;

  // Gives the schedule the buffers that it uses, in the order of their first uses.
  Schedule& finish();

  // Declares a buffer, by a name that no other has. Each part of a lowering declares what its ops
  // use when it is made, so that bytes can be summed where no op is emitted.
  BufferId declare(Buffer buffer);
  [[nodiscard]] std::vector<Buffer>& declared() { return declared_; }
  // The buffer in the schedule, from its first use on.
  BufferIndex use(BufferId id);
  // Declares a buffer that is in the schedule in any case.
  BufferIndex add(Buffer buffer) { return use(declare(std::move(buffer))); }
  [[nodiscard]] const Buffer& at(BufferIndex buffer) const;

  void begin_block(std::string name);
  void end_block();

  // Begins a new version of a ring in this block; rows < 0: the whole slot.
  Operand next(BufferIndex ring, std::int64_t rows = -1);
  // Versions begun in this block so far.
  [[nodiscard]] std::int64_t begun(BufferIndex ring) const;
  // For buffers whose versions the caller numbers.
  void advance(BufferIndex buffer, std::int64_t versions);

  // The name of an op: `text` with a part in place of each {}.
  template <class... Parts>
  [[nodiscard]] std::string name(std::string_view text, const Parts&... parts) const {
    return names_ops ? filled(text, {NamePart(parts)...}) : std::string();
  }

  // Makes room for that many more ops in this block.
  void expect(std::int64_t ops) {
    if (sketch != nullptr) return;
    std::vector<Op>& all = schedule.blocks.back().ops;
    all.reserve(all.size() + static_cast<std::size_t>(ops));
  }
  // Makes the op where it stays: it is large, and a search makes millions of them.
  template <class Kind>
  void emit(std::string name, LaneKind lane, Kind&& body) {
    if (sketch != nullptr) return emit_uses(lane, Body(std::forward<Kind>(body)));
    schedule.blocks.back().ops.emplace_back(std::move(name), Lane{lane, 0},
                                            std::forward<Kind>(body));
  }

  // Appends a call of the named block.
  void call(std::vector<Call>& calls, std::string_view block, std::int64_t layer = 0,
            std::int64_t micro_batch = 0, const LayerPlace& at = {}) const;

 private:
  static std::string filled(std::string_view text, std::initializer_list<NamePart> parts);
  void emit_uses(LaneKind lane, const Body& body);

  std::vector<Buffer> declared_;
  std::vector<BufferIndex> number_;  // of each declared buffer; -1 before its first use
  std::vector<BufferId> used_;       // of each buffer of the schedule
  std::vector<std::int64_t> begun_;  // per buffer of the schedule, in the open block
};

}  // namespace fpdt
