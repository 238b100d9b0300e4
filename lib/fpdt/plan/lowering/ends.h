// The two ends of the model: embedding, and final norm with the loss.
#pragma once

#include <string>

#include "fpdt/plan/lowering/products.h"

namespace fpdt {

class Ends : public LoweringPart {
 public:
  explicit Ends(Context& context);

  void emit_embed();
  void emit_embed_backward();
  void emit_head(const std::string& name, bool train);

 private:
  // Some rows of an extent at the head of the model.
  struct LossTile {
    std::int64_t extent = 0, first = 0, rows = 0;  // rows [first, first + rows) of the extent
    std::int64_t wide = 0;                         // words of the largest tile
    std::string weight;
    Operand x, labels, normed, statistics, logits;
    [[nodiscard]] std::string name(const Builder& builder, const char* what,
                                   std::int64_t word = -1) const;
  };

  void loss_rows(std::int64_t extent, std::int64_t first, std::int64_t rows, const Operand& x,
                 const Operand& dx, bool train);
  std::int64_t emit_logits(LossTile& tile, const char* name, std::int64_t word);
  void loss_gradient(LossTile& tile, const Operand& dx);

  // Rows and words of the largest tile.
  [[nodiscard]] std::int64_t loss_tile() const;
  [[nodiscard]] std::int64_t words() const;

  Products products_;
  BufferId normed_, logits_, statistics_, normed_gradient_, logits_gradient_;
};

}  // namespace fpdt
