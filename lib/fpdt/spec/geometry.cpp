// The geometry that follows from a problem and a strategy.
#include <algorithm>

#include "fpdt/base/math.h"
#include "fpdt/spec/strategy.h"

namespace fpdt {

Geometry geometry(const Problem& problem, const Strategy& strategy) {
  Geometry shape;
  shape.data_parallel = strategy.mesh.replicas;
  shape.sequence_parallel = div_exact(problem.ranks(), strategy.mesh.replicas);
  shape.ring = strategy.mesh.ring;
  shape.tensor_ranks = strategy.mesh.tensor;
  const std::int64_t unit = shape.sequence_parallel * problem.cluster.row_multiple;
  shape.padded_tokens = round_up(problem.seq_len, unit);
  shape.chunk_rows = std::min(strategy.tiles.chunk_tokens, shape.padded_tokens);
  shape.chunks = div_ceil(shape.padded_tokens, shape.chunk_rows);
  shape.last_chunk_rows = shape.padded_tokens - (shape.chunks - 1) * shape.chunk_rows;
  const std::int64_t share = shape.head_ranks() * shape.tensor_ranks;
  shape.heads = problem.model.heads / share;
  shape.kv_heads = std::max<std::int64_t>(1, problem.model.kv_heads / share);
  shape.extents = strategy.extent == Extent::chunk ? shape.chunks : 1;
  shape.hops = strategy.keys == Keys::ring ? shape.ring : 1;
  shape.zigzag = strategy.layout == Layout::zigzag && shape.ring > 1 && shape.chunks > 1;
  return shape;
}

Geometry::Parts Geometry::parts(const LayerClass& layers, TensorClass tensor) const {
  std::int64_t all = chunks;
  switch (tensor) {
    case TensorClass::layer_input:
    case TensorClass::norm_output:
    case TensorClass::attention_output:
    case TensorClass::residual:
    case TensorClass::ffn_hidden:
    case TensorClass::layer_gradient:
    case TensorClass::residual_gradient:
      all = extents;
      break;
    case TensorClass::q:
    case TensorClass::kv:
    case TensorClass::lse:
    case TensorClass::dout:
    case TensorClass::dq:
    case TensorClass::dkv:
    case TensorClass::attention_sum:
      break;
  }
  const bool outputs = tensor == TensorClass::attention_output || tensor == TensorClass::lse;
  if (outputs && layers.recompute != Recompute::from_input) {
    all -= std::min(all, layers.first_stored_chunk);
  }
  return {all, static_cast<std::int64_t>(layers.kept(tensor) * static_cast<double>(all))};
}

}  // namespace fpdt
