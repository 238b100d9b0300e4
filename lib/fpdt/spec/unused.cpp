// Which tensor classes have a residency, by the other choices.
#include "fpdt/spec/strategy.h"

namespace fpdt {

std::string_view why_queries_stored(const Strategy& strategy, const LayerClass& layers) {
  if (strategy.tiles.backward_order != BackwardOrder::q_outer) return "it needs q_outer";
  if (strategy.keys == Keys::ring && strategy.mesh.ring > 1) return "queries go on from hop to hop";
  if (strategy.extent == Extent::whole) return "it needs extent: chunk";
  if (strategy.mesh.tensor > 1) return "ranks share products";
  if (layers.recompute == Recompute::keep_all) return "recompute: keep_all stores them in forward";
  return {};
}

bool projects_queries_again(const Strategy& strategy, const LayerClass& layers) {
  return strategy.queries == Queries::again && why_queries_stored(strategy, layers).empty();
}

std::string_view why_unused(const ModelSpec& model, const Strategy& strategy,
                            const LayerClass& layers, TensorClass tensor) {
  const bool query_outer = strategy.tiles.backward_order == BackwardOrder::q_outer;
  const bool travel = strategy.keys == Keys::ring && strategy.mesh.ring > 1;
  const bool whole = strategy.extent == Extent::whole;
  switch (tensor) {
    case TensorClass::norm_output:
    case TensorClass::residual:
    case TensorClass::ffn_hidden:
      if (layers.recompute != Recompute::keep_all) {
        return "it is stored under recompute: keep_all only";
      }
      if (tensor == TensorClass::norm_output && !model.pre_norms) return "inputs are not normed";
      if (tensor == TensorClass::residual && model.parallel_residual) {
        return "the feed-forward reads the layer's input";
      }
      return {};
    case TensorClass::attention_output:
      if (!whole || layers.recompute != Recompute::from_input) return {};
      return "with extent: whole one block makes it and uses it";
    case TensorClass::residual_gradient:
      if (whole) return "with extent: whole one block makes it and uses it";
      if (query_outer && !travel) return "q_outer uses it in the row that makes it";
      return {};
    case TensorClass::dout:
      if (query_outer && !travel) return "q_outer uses it in the row that makes it";
      return {};
    case TensorClass::dq:
      if (query_outer && !travel) return "q_outer completes it in one row";
      return {};
    case TensorClass::dkv:
      if (!query_outer && !travel) return "kv_outer completes it in one row";
      return {};
    case TensorClass::attention_sum:
      if (!travel) return "a row of tiles completes it without keys: ring";
      return {};
    case TensorClass::q:
      if (!projects_queries_again(strategy, layers)) return {};
      return "backward projects it again at its row";
    case TensorClass::layer_input:
    case TensorClass::kv:
    case TensorClass::lse:
      return {};
    case TensorClass::layer_gradient:
      if (strategy.layer_gradients == LayerGradients::apart) return {};
      return "it is in the slots of layer_input";
  }
  return {};
}

}  // namespace fpdt
