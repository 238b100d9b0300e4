// Parameters for the list of a model's tensors.
#include "fpdt/reference/parameters.h"

#include "fpdt/base/assert.h"

namespace fpdt::reference {

std::vector<TensorSpec> model_tensors(const ModelSpec& model) {
  std::vector<TensorSpec> tensors = global_tensors(model);
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    for (TensorSpec& tensor : layer_tensors(model)) {
      tensor.name = layer_tensor_name(layer, tensor.name);
      tensors.push_back(tensor);
    }
  }
  return tensors;
}

Parameters zeros(const ModelSpec& model) {
  Parameters result;
  for (const TensorSpec& tensor : model_tensors(model)) {
    result.tensors[tensor.name] = Matrix(size(tensor.elements()), 0.0);
  }
  return result;
}

const Matrix& find(const Parameters& parameters, const std::string& name) {
  static const Matrix kAbsent;
  const auto found = parameters.tensors.find(name);
  return found == parameters.tensors.end() ? kAbsent : found->second;
}

void add_to(Parameters& parameters, const std::string& name, const Matrix& values) {
  const auto found = parameters.tensors.find(name);
  if (found == parameters.tensors.end()) return;
  FPDT_ASSERT(found->second.size() == values.size());
  add_to(found->second, values);
}

}  // namespace fpdt::reference
