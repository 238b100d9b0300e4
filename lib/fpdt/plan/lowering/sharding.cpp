// Lists what ranks share, and with whom.
#include "fpdt/plan/lowering/sharding.h"

#include <span>

#include <fmt/format.h>

#include "fpdt/plan/lowering/groups.h"

namespace fpdt {
namespace {

// The parts of an axis that several weights share, or of one.
std::vector<std::int64_t> sections_of(const ModelSpec& model, const TensorSpec& spec,
                                      std::size_t axis) {
  const std::string& name = spec.name;
  if (name.starts_with("qkv.")) return {model.q_width(), model.kv_width(), model.kv_width()};
  if (name.starts_with("up.") && model.is_gated() && !model.has_experts()) {
    return {model.feed_forward, model.feed_forward};
  }
  return {spec.shape[axis]};
}

std::int64_t elements_of(const SharedTensor& tensor) {
  State state;
  state.shape = tensor.spec.shape;
  state.cut = tensor.cut;
  return part_elements(state);
}

// Ranks that are `distance` apart, each with a piece of what the group has.
struct Level {
  const char* group;
  std::int64_t members, distance;
  bool in_node = false;
};
using Levels = std::vector<Level>;

// The piece of a rank that lies in levels of pieces.
RankExpression piece_of(std::span<const Level> levels) {
  RankExpression piece;
  std::int64_t pieces = 1;
  RankTerm* term = levels.size() > 1 ? &piece.second : &piece.first;
  for (std::size_t i = levels.size(); i-- > 0; term = &piece.first) {
    *term = {pieces, 0, levels[i].distance, levels[i].members};
    pieces *= levels[i].members;
  }
  return piece;
}

void share(const Strategy& strategy, const Levels& levels, SharedTensor& tensor) {
  const bool hybrid = strategy.zero_groups == ZeroGroups::hybrid;
  tensor.groups.clear();
  tensor.sharding = {1, strategy.zero, 1};
  tensor.lenders = 0;
  for (const Level& level : levels) {
    tensor.groups.emplace_back(level.group);
    tensor.sharding.ranks *= level.members;
    if (strategy.zero < 3 || (hybrid && !level.in_node)) continue;
    tensor.sharding.holders *= level.members;
    ++tensor.lenders;
  }
  tensor.shard = piece_of(levels);
  tensor.block = piece_of(std::span(levels).first(tensor.lenders));
}

SharedTensor whole(const Strategy& strategy, const Sharers& sharers, const TensorSpec& spec) {
  SharedTensor tensor;
  tensor.name = spec.name;
  tensor.spec = spec;
  tensor.elements = spec.elements();
  Levels levels{{"world", sharers.ranks, 1, true}};
  if (sharers.node > 0) {
    const std::int64_t node = sharers.node;
    levels = {{"node", node, 1, true}, {"nodes", sharers.ranks / node, node}};
  }
  share(strategy, levels, tensor);
  return tensor;
}

// What the ranks with the same part of a tensor share it in.
Levels levels_of_parts(const Sharers& sharers) {
  const std::int64_t ranks = sharers.ranks, ways = sharers.ways;
  if (sharers.here <= 1) return {{"cut", ranks / ways, ways, sharers.node == 0}};
  return {{"cut_node", sharers.here, ways, true}, {"nodes", ranks / sharers.node, sharers.node}};
}

SharedTensor cut(const Strategy& strategy, const Sharers& sharers, SharedTensor tensor,
                 std::size_t axis, std::vector<std::int64_t> sections) {
  tensor.cut = {static_cast<std::int64_t>(axis),
                0,
                std::move(sections),
                sharers.ways,
                {0, {1, 0, 1, sharers.ways}}};
  tensor.elements = elements_of(tensor);
  share(strategy, levels_of_parts(sharers), tensor);
  return tensor;
}

// Queries in as many parts as ranks share products, and keys and values in as many as there are KV
// heads, each of which `copies` ranks have.
void cut_apart(const Strategy& strategy, const Sharers& sharers, const ModelSpec& model,
               const SharedTensor& fused, std::vector<SharedTensor>& tensors) {
  const std::string kind = fused.name.substr(fused.name.find('.'));
  tensors.push_back(cut(strategy, sharers, fused, 0, {model.q_width()}));
  tensors.back().name = "q" + kind;
  SharedTensor keys = tensors.back();
  keys.name = "kv" + kind;
  keys.cut = {0,
              model.q_width(),
              {model.kv_width(), model.kv_width()},
              model.kv_heads,
              {0, {model.kv_heads > 1 ? 1 : 0, 0, sharers.copies, model.kv_heads}}};
  keys.elements = elements_of(keys);
  Levels levels{{"kv", sharers.copies, 1, true}};  // as near as those who share a product are
  const std::int64_t others = sharers.ranks / sharers.ways;
  if (others > 1) levels.push_back({"cut", others, sharers.ways, sharers.node == 0});
  share(strategy, levels, keys);
  tensors.push_back(std::move(keys));
}

// Slices of experts, one after the other: "up.weight.0", ...
void slice(std::int64_t slices, const SharedTensor& all, std::vector<SharedTensor>& tensors) {
  const std::int64_t rows = div_exact(all.spec.shape.front(), slices);
  for (std::int64_t i = 0; i < slices; ++i) {
    SharedTensor& one = tensors.emplace_back(all);
    one.name = slice_name(all.name, i);
    one.ring = all.name;
    one.cut = {0, i * rows, {rows}, 1, {}};
    one.elements = elements_of(one);
  }
}

}  // namespace

std::string slice_name(std::string_view tensor, std::int64_t slice) {
  return fmt::format("{}.{}", tensor, slice);
}

std::vector<SharedTensor> shared_layer_tensors(const Problem& problem, const Strategy& strategy,
                                               const ModelSpec& model) {
  const Sharers sharers(problem, strategy);
  const std::vector<TensorSpec> parts = layer_tensors(part_of(model, sharers.ways));
  std::vector<SharedTensor> tensors;
  std::size_t number = 0;
  for (const TensorSpec& spec : layer_tensors(model)) {
    const SharedTensor all = whole(strategy, sharers, spec);
    const TensorSpec& part = parts[number++];
    if (sharers.copies > 1 && spec.name.starts_with("qkv.")) {
      cut_apart(strategy, sharers, model, all, tensors);
      continue;
    }
    const bool of_experts = spec.name == "up.weight" || spec.name == "down.weight";
    if (model.has_experts() && of_experts && strategy.tiles.expert_slices > 1) {
      slice(strategy.tiles.expert_slices, all, tensors);
      continue;
    }
    tensors.push_back(all);
    for (std::size_t axis = 0; axis < spec.shape.size(); ++axis) {
      if (part.shape[axis] == spec.shape[axis]) continue;
      tensors.back() = cut(strategy, sharers, all, axis, sections_of(model, spec, axis));
    }
  }
  return tensors;
}

std::vector<SharedTensor> shared_global_tensors(const Problem& problem, const Strategy& strategy) {
  const Sharers sharers(problem, strategy);
  std::vector<SharedTensor> tensors;
  for (const TensorSpec& spec : global_tensors(problem.model)) {
    tensors.push_back(whole(strategy, sharers, spec));
  }
  return tensors;
}

}  // namespace fpdt
