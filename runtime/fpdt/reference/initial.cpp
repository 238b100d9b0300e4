// Every tensor of a model at its initial value.
#include "fpdt/reference/initial.h"

#include "fpdt/spec/initial.h"

namespace fpdt::reference {

Parameters initial_parameters(const ModelSpec& model, std::uint64_t seed) {
  Parameters parameters;
  for (const TensorSpec& tensor : model_tensors(model)) {
    const std::uint64_t hash = tensor_name_hash(tensor.name);
    Matrix& values = parameters.tensors[tensor.name];
    for (std::int64_t element = 0; element < tensor.elements(); ++element) {
      values.push_back(initial_value(seed, hash, element, tensor));
    }
  }
  return parameters;
}

}  // namespace fpdt::reference
