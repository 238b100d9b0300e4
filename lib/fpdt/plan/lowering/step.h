// A whole step: tokens, gathers, both ends, layers, states, and the order of the calls.
#pragma once

#include <vector>

#include "fpdt/plan/lowering/ends.h"
#include "fpdt/plan/lowering/layers.h"

namespace fpdt {

class StepLowering : public LoweringPart {
 public:
  explicit StepLowering(Context& context);

  Schedule lower();  // without the table of states

 private:
  void emit_tokens();
  void feed_tokens();
  void emit_gathers();
  void emit_layers();
  void emit_programs();
  void call_forward(std::vector<Call>& calls, std::int64_t micro_batch);
  void call_backward(std::vector<Call>& calls, std::int64_t micro_batch);

  // Tokens, labels or document starts: of all micro-batches on the host, of one on the device.
  struct Rows {
    BufferId input, here;
  };
  Rows declare_tokens(Holds holds, std::int64_t rows);
  BufferIndex fetch(Holds holds, const Rows& rows);

  Layers layers_;
  Ends ends_;
  Rows documents_, tokens_, labels_;
};

}  // namespace fpdt
