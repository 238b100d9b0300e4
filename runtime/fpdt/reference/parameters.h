// Named tensors: the parameters of a model, their gradients, or their moments.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "fpdt/reference/matrix.h"
#include "fpdt/spec/model.h"

namespace fpdt::reference {

// Keyed by full name: "embed.weight", "layers.3.qkv.weight".
struct Parameters {
  std::map<std::string, Matrix> tensors;
};

Parameters zeros(const ModelSpec& model);

// Returns the tensor, or an empty matrix if there is none of that name.
const Matrix& find(const Parameters& parameters, const std::string& name);

// Adds values to the tensor. Does nothing if there is none of that name.
void add_to(Parameters& parameters, const std::string& name, const Matrix& values);

}  // namespace fpdt::reference
