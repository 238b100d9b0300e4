// Parameters for the list of a model's tensors.
#include "fpdt/reference/parameters.h"

#include "fpdt/base/assert.h"

namespace fpdt::reference {

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
