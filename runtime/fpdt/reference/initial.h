// The parameters that training starts from, with the values of spec/initial.h.
#pragma once

#include <cstdint>

#include "fpdt/reference/parameters.h"
#include "fpdt/spec/model.h"

namespace fpdt::reference {

Parameters initial_parameters(const ModelSpec& model, std::uint64_t seed);

}  // namespace fpdt::reference
