// How ranks share parameters, gradients and states: the stages of ZeRO (Rajbhandari et al.,
// arXiv 1910.02054, section 5) over the ranks that have the same tensor, or the same part of one
// that tensor parallelism cuts.
//
// What ranks share lies flat and zero-padded to one piece for each of them. The gradients of a step
// are summed in these pieces at every stage, so that all stages with one micro-batch give the same
// bits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/base/math.h"
#include "fpdt/schedule/schedule.h"
#include "fpdt/spec/strategy.h"

namespace fpdt {

struct Sharding {
  std::int64_t ranks = 1;
  std::int64_t stage = 3;
  std::int64_t holders = 1;  // ranks that together hold the parameters, each a block of them

  // One rank shares nothing: its piece is the tensor.
  [[nodiscard]] bool several() const { return ranks > 1; }
  // Parameters lie in blocks, and are gathered before their use.
  [[nodiscard]] bool gathers_parameters() const { return holders > 1; }
  // Each rank updates its piece of the parameters and then gives it to those with the same block.
  [[nodiscard]] bool spreads_updates() const { return stage > 0 && holders < ranks; }
  // Whole gradients collect on each rank and are summed once a step. At other stages those of a
  // layer are summed as soon as they are complete.
  [[nodiscard]] bool collects_gradients() const { return several() && stage <= 1; }
  // Every rank has all states and makes every update.
  [[nodiscard]] bool repeats_updates() const { return several() && stage == 0; }

  // Elements of a piece, and of all pieces with their padding.
  [[nodiscard]] std::int64_t piece(std::int64_t elements) const {
    return div_ceil(elements, ranks);
  }
  [[nodiscard]] std::int64_t whole(std::int64_t elements) const {
    return mul(piece(elements), ranks);
  }
  // Elements of parameters, and of states, that a rank holds from step to step. Parameters have
  // the padding of the pieces that they are gathered from.
  [[nodiscard]] std::int64_t parameters(std::int64_t elements) const {
    return repeats_updates() ? elements : div_exact(whole(elements), holders);
  }
  [[nodiscard]] std::int64_t states(std::int64_t elements) const {
    return repeats_updates() ? elements : piece(elements);
  }
};

// A tensor, or its parts, and the ranks that share each.
struct SharedTensor {
  std::string name;           // of its buffers
  std::string ring;           // of a slice of experts: what names slots that slices use in turn
  TensorSpec spec;            // the whole
  std::int64_t elements = 0;  // of a part
  TensorCut cut;
  Sharding sharding;
  // The ranks that share a part: one group, or groups of groups. Gradients are summed within the
  // first, and then over the next; parameters are gathered in the opposite order.
  std::vector<std::string> groups;
  // How many of the groups, from the first on, gather parameters before their use. The others
  // gather them after an update.
  std::size_t lenders = 0;
  RankExpression shard, block;  // the piece of a rank, and its block of the parameters
};
// In the order of layer_tensors and global_tensors. Tensor parallelism cuts columns of qkv and up
// and rows of out and down (Shoeybi et al., arXiv 1909.08053, section 3), and nothing else. Where
// more ranks share products than there are KV heads, the queries of qkv ("q") are cut in more parts
// than its keys and values ("kv"), which several ranks have (keys_apart).
// `layer`: the model of a run of layers.
std::vector<SharedTensor> shared_layer_tensors(const Problem& problem, const Strategy& strategy,
                                               const ModelSpec& layer);
// The name of a slice of such a tensor (Tiles::expert_slices).
std::string slice_name(std::string_view tensor, std::int64_t slice);
std::vector<SharedTensor> shared_global_tensors(const Problem& problem, const Strategy& strategy);

}  // namespace fpdt
