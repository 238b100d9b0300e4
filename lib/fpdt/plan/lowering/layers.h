// Blocks of layers: which part serves which chunk, and when.
//
// One rank's view of a layer, chunk by chunk (l rows of this rank, n = P*l rows after the
// all-to-all):
//
//   project(i)       x_i -> norm -> qkv -> heads apart -> all-to-all -> q_i, kv_i
//   row(i)           attention of q_i over kv_0 .. kv_i, fetched ahead; all-to-all of the output
//   feed_forward(i)  + residual, norm, feed-forward in row tiles -> x_i of the next layer
//
// With parallel residuals the norm in feed_forward reads x_i, so that backward of the feed-forward
// needs nothing of attention.
//
// Backward of a chunk is feed_forward_backward(i) (feed-forward, output projection, all-to-all of
// the output's gradient), attention tiles in either loop order, and projection_backward(i).
// Nothing on the device is longer than a chunk unless the strategy keeps it, or its extent is all
// rows of the rank: then project(0) begins with their norm, and feed_forward follows the last
// chunk. Backward mirrors this.
//
// A rerun takes the attention outputs that forward stored, and makes those of the first chunks
// again. Backward of the layer finds both.
#pragma once

#include <string>

#include "fpdt/plan/lowering/attention.h"
#include "fpdt/plan/lowering/rows.h"
#include "fpdt/plan/lowering/transition.h"

namespace fpdt {

class Layers : public LoweringPart {
 public:
  explicit Layers(Context& context)
      : LoweringPart(context),
        transition_(context),
        rows_(context, transition_),
        travel_(context),
        attention_(context, travel_) {}

  void emit(const std::string& name, const LayerBlock& block);

 private:
  [[nodiscard]] LayerFrame begin(const std::string& name, const LayerBlock& block);
  void backward(LayerFrame& frame);
  void forward_rows(LayerFrame& frame);
  void kv_outer(LayerFrame& frame);
  void query_outer(LayerFrame& frame);
  void advance_repeated(const LayerFrame& frame);

  Transition transition_;
  Rows rows_;
  Travel travel_;
  Attention attention_;
};

}  // namespace fpdt
