// The longest sequence that fits.
#pragma once

#include <cstdint>

#include "fpdt/plan/search/search.h"

namespace fpdt {

// The longest sequence for which the search finds a strategy, to 1/64 of itself or better; 0: none.
std::int64_t longest_sequence(const Problem& problem, const Pins& pins,
                              const OnProgress& progress = {});

// Whether a sequence may have so many tokens, apart from memory.
bool possible_length(const ModelSpec& model, std::int64_t tokens);

}  // namespace fpdt
