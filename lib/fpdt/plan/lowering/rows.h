// Rows of a chunk in sequence layout: norms, projections and the feed-forward, forward and
// backward.
#pragma once

#include "fpdt/plan/lowering/context.h"
#include "fpdt/plan/lowering/products.h"
#include "fpdt/plan/lowering/transition.h"

namespace fpdt {

class Rows : public LoweringPart {
 public:
  Rows(Context& context, Transition& transition)
      : LoweringPart(context), products_(context), transition_(transition) {}

  // q_i and kv_i in head layout from x_i.
  void project(LayerFrame& frame, std::int64_t chunk);
  // Residual, second norm and feed-forward of chunk i: the input of the next layer.
  void feed_forward(LayerFrame& frame, std::int64_t chunk);
  // dh_i from dy_i, and the gradient of the attention output, on its way to head layout.
  void feed_forward_backward(LayerFrame& frame, std::int64_t chunk);
  // From dq_i, dkv_i and dh_i to the gradient of the layer's input.
  void projection_backward(LayerFrame& frame, std::int64_t chunk);

 private:
  void tiles_backward(LayerFrame& frame, std::int64_t chunk, const Operand& h, const Operand& dy);
  [[nodiscard]] std::int64_t ffn_tile() const;
  [[nodiscard]] ActivationKind activation_kind() const;

  Products products_;
  Transition& transition_;
};

}  // namespace fpdt
