// The longest sequence that fits.
#pragma once

#include <cstdint>

#include "fpdt/plan/search/search.h"

namespace fpdt {

// The longest sequence for which the search finds a strategy, to 1/64 of itself or better; 0: none.
// `whole`: false places only few layers of a step, which takes half as long. A search in whole then
// finds a strategy nearly always.
std::int64_t longest_sequence(const Problem& problem, const Pins& pins,
                              const OnProgress& progress = {}, bool whole = true);

// The longest of these whose step takes at most `share` longer than with unlimited host memory, to
// 1/64 of itself; 0: none.
std::int64_t longest_within(const Problem& problem, const Pins& pins, double share,
                            const OnProgress& progress = {});

// Whether a sequence may have so many tokens, apart from memory.
bool possible_length(const ModelSpec& model, std::int64_t tokens);

}  // namespace fpdt
