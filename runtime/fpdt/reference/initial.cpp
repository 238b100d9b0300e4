// Every tensor of a model at its initial value.
#include "fpdt/reference/initial.h"

#include <vector>

#include "fpdt/base/hash.h"
#include "fpdt/spec/initial.h"

namespace fpdt::reference {

Parameters initial_parameters(const ModelSpec& model, std::uint64_t seed) {
  Parameters parameters;
  for (const TensorSpec& tensor : model_tensors(model)) {
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    initial_values(seed, fnv1a(tensor.name), 0, tensor, values);
    parameters.tensors[tensor.name].assign(values.begin(), values.end());
  }
  return parameters;
}

}  // namespace fpdt::reference
