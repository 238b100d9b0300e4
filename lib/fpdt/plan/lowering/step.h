// A whole step: tokens, gathers, both ends, layers, states, and the order of the calls.
#pragma once

#include <array>
#include <string>
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
  // The block of a layer on a visit, and the word for it.
  [[nodiscard]] LayerBlock block_of(std::int64_t layer, Visit visit);
  [[nodiscard]] std::string word_of(std::int64_t layer, Visit visit) const;
  [[nodiscard]] std::string of_run(std::string_view block, std::int64_t layer) const;
  void emit_programs();
  void call_forward(std::vector<Call>& calls, std::int64_t micro_batch);
  void call_backward(std::vector<Call>& calls, std::int64_t micro_batch);

  // Tokens, labels or document starts: of all micro-batches on the host, of one on the device.
  struct Rows {
    BufferId input, here;
  };
  Rows declare_tokens(Holds holds, std::int64_t rows);
  BufferIndex fetch(Holds holds, const Rows& rows);

  // Names of the blocks that serve layers.
  [[nodiscard]] std::string& name_of(Visit visit, std::int64_t layer) {
    return names_[static_cast<std::size_t>(visit)][index(layer)];
  }

  Layers layers_;
  std::array<std::vector<std::string>, 3> names_;  // [visit][layer]
  Ends ends_;
  Rows documents_, tokens_, labels_;
};

}  // namespace fpdt
