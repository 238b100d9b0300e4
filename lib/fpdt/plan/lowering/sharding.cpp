// Lists what ranks share, and with whom.
#include "fpdt/plan/lowering/sharding.h"

namespace fpdt {
namespace {

// The sides of the grid that share tensors.
struct Sides {
  std::int64_t ranks, ways;
  std::int64_t copies;  // ranks side by side that have the same keys

  Sides(const Problem& problem, const Strategy& strategy)
      : ranks(problem.ranks()),
        ways(strategy.mesh.tensor),
        copies(keys_apart(problem.model, strategy) ? ways / problem.model.kv_heads : 1) {}
};

// The parts of an axis that several weights share, or of one.
std::vector<std::int64_t> sections_of(const ModelSpec& model, const TensorSpec& spec,
                                      std::size_t axis) {
  const std::string& name = spec.name;
  if (name.starts_with("qkv.")) return {model.q_width(), model.kv_width(), model.kv_width()};
  if (name.starts_with("up.") && model.activation == ActivationFamily::swiglu) {
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

SharedTensor whole(const Problem& problem, const Strategy& strategy, const TensorSpec& spec) {
  const std::int64_t ranks = problem.ranks();
  return {spec.name,
          spec,
          spec.elements(),
          {},
          {ranks, strategy.zero},
          {"world"},
          {0, {1, 0, 1, ranks}}};
}

SharedTensor cut(const Sides& sides, SharedTensor tensor, std::size_t axis,
                 std::vector<std::int64_t> sections) {
  const std::int64_t sharers = sides.ranks / sides.ways;
  tensor.cut = {static_cast<std::int64_t>(axis),
                0,
                std::move(sections),
                sides.ways,
                {0, {1, 0, 1, sides.ways}}};
  tensor.elements = elements_of(tensor);
  tensor.sharding.ranks = sharers;
  tensor.groups = {"cut"};
  tensor.shard = {0, {1, 0, sides.ways, sharers}};
  return tensor;
}

// Queries in as many parts as ranks share products, and keys and values in as many as there are KV
// heads, each of which `copies` ranks have.
void cut_apart(const Sides& sides, const ModelSpec& model, const SharedTensor& fused,
               std::vector<SharedTensor>& tensors) {
  const std::string kind = fused.name.substr(fused.name.find('.'));
  SharedTensor& queries = tensors.emplace_back(cut(sides, fused, 0, {model.q_width()}));
  queries.name = "q" + kind;
  SharedTensor keys = queries;
  keys.name = "kv" + kind;
  const std::int64_t sharers = sides.ranks / sides.ways;
  keys.cut = {0,
              model.q_width(),
              {model.kv_width(), model.kv_width()},
              model.kv_heads,
              {0, {model.kv_heads > 1 ? 1 : 0, 0, sides.copies, model.kv_heads}}};
  keys.elements = elements_of(keys);
  keys.sharding.ranks = sharers * sides.copies;
  keys.groups = {"kv"};
  if (sharers > 1) keys.groups.push_back("cut");
  keys.shard = {0, {sharers, 0, 1, sides.copies}, {sharers > 1 ? 1 : 0, 0, sides.ways, sharers}};
  tensors.push_back(std::move(keys));
}

}  // namespace

bool keys_apart(const ModelSpec& model, const Strategy& strategy) {
  return strategy.mesh.tensor > model.kv_heads;
}

std::vector<Group> sharing_groups(const Problem& problem, const Strategy& strategy) {
  const Sides sides(problem, strategy);
  std::vector<Group> groups{{"world", sides.ranks, 1, {}}};
  if (sides.ways > 1 && sides.ranks > sides.ways) {
    groups.push_back({"cut", sides.ranks / sides.ways, sides.ways, {0, {1, 0, 1, sides.ways}}});
  }
  if (sides.copies > 1) {
    const std::int64_t n = sides.ranks / sides.copies;
    groups.push_back({"kv", sides.copies, 1, {0, {n > 1 ? sides.copies : 0, 0, sides.copies, n}}});
  }
  return groups;
}

std::vector<SharedTensor> shared_layer_tensors(const Problem& problem, const Strategy& strategy) {
  const Sides sides(problem, strategy);
  const ModelSpec& model = problem.model;
  const std::vector<TensorSpec> parts = layer_tensors(part_of(model, sides.ways));
  std::vector<SharedTensor> tensors;
  std::size_t number = 0;
  for (const TensorSpec& spec : layer_tensors(model)) {
    const SharedTensor all = whole(problem, strategy, spec);
    const TensorSpec& part = parts[number++];
    if (sides.copies > 1 && spec.name.starts_with("qkv.")) {
      cut_apart(sides, model, all, tensors);
      continue;
    }
    tensors.push_back(all);
    for (std::size_t axis = 0; axis < spec.shape.size(); ++axis) {
      if (part.shape[axis] == spec.shape[axis]) continue;
      tensors.back() = cut(sides, all, axis, sections_of(model, spec, axis));
    }
  }
  return tensors;
}

std::vector<SharedTensor> shared_global_tensors(const Problem& problem, const Strategy& strategy) {
  std::vector<SharedTensor> tensors;
  for (const TensorSpec& spec : global_tensors(problem.model)) {
    tensors.push_back(whole(problem, strategy, spec));
  }
  return tensors;
}

}  // namespace fpdt
