// Whose kernels compute the tiles of attention: the backend's own, or cuDNN's, which take less.
#pragma once

#include <cstdint>
#include <string>

#include "fpdt/spec/strategy.h"

namespace fpdt {

// Why the backend's own kernels compute tiles where the cluster's are cuDNN's; "" when they do not.
std::string why_own_attention(const Problem& problem, const Strategy& strategy);
// Whether tiles are cuDNN's.
bool fused_attention(const Problem& problem, const Strategy& strategy);

// The longest chunk whose tiles can be cuDNN's, by whole rows of all ranks of a sequence: operands
// have less than 2^31 elements.
std::int64_t longest_fused_chunk(const Problem& problem, std::int64_t sequence_parallel);

}  // namespace fpdt
