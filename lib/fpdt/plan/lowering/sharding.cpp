// Lists what ranks share.
#include "fpdt/plan/lowering/sharding.h"

namespace fpdt {
namespace {

SharedTensor shared_by_all(const Problem& problem, const Strategy& strategy,
                           const TensorSpec& spec) {
  return {spec, spec.elements(), {}, {problem.ranks(), strategy.zero}, "world"};
}

// Of an axis that several weights share, or of one.
std::vector<std::int64_t> sections_of(const ModelSpec& model, std::string_view tensor,
                                      std::int64_t extent) {
  if (tensor.starts_with("qkv.")) return {model.q_width(), model.kv_width(), model.kv_width()};
  if (tensor.starts_with("up.") && model.activation == ActivationFamily::swiglu) {
    return {model.feed_forward, model.feed_forward};
  }
  return {extent};
}

}  // namespace

std::vector<SharedTensor> shared_layer_tensors(const Problem& problem, const Strategy& strategy) {
  const std::int64_t ways = strategy.mesh.tensor;
  const ModelSpec& model = problem.model;
  const std::vector<TensorSpec> parts = layer_tensors(part_of(model, ways));
  std::vector<SharedTensor> tensors;
  for (const TensorSpec& spec : layer_tensors(model)) {
    SharedTensor& made = tensors.emplace_back(shared_by_all(problem, strategy, spec));
    const TensorSpec& part = parts[tensors.size() - 1];
    for (std::size_t axis = 0; axis < spec.shape.size(); ++axis) {
      if (part.shape[axis] == spec.shape[axis]) continue;
      made.elements = part.elements();
      made.cut = {static_cast<std::int64_t>(axis),
                  0,
                  sections_of(model, spec.name, spec.shape[axis]),
                  ways,
                  {0, {1, 0, 1, ways}}};
      made.sharding.ranks = div_exact(problem.ranks(), ways);
      made.group = "cut";
    }
  }
  return tensors;
}

std::vector<SharedTensor> shared_global_tensors(const Problem& problem, const Strategy& strategy) {
  std::vector<SharedTensor> tensors;
  for (const TensorSpec& spec : global_tensors(problem.model)) {
    tensors.push_back(shared_by_all(problem, strategy, spec));
  }
  return tensors;
}

}  // namespace fpdt
