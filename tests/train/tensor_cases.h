// Cases whose ranks share each product, beside everything else that ranks may do.
#pragma once

#include <vector>

#include "cases.h"

namespace fpdt {

// Of the product of meshes, models and choices, one of `each`, so that all pairs are met.
std::vector<Case> tensor_cases(std::size_t each);

}  // namespace fpdt
