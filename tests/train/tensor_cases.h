// Cases whose ranks share each product, beside everything else that ranks may do.
#pragma once

#include <vector>

#include "cases.h"

namespace fpdt {

// Of the product of meshes, models and choices, one of `each`, so that all pairs are met.
std::vector<Case> tensor_cases(std::size_t each);

// Every mesh of up to 4 ranks that share products, 2 that exchange heads, rings of up to 3 and 2
// replicas, beside kinds of KV heads, families, tied embeddings, biases, ragged chunks and packed
// documents: thousands, which take many minutes.
std::vector<Case> whole_tensor_product();

}  // namespace fpdt
