// The longest sequence that fits.
#pragma once

#include <cstdint>

#include "fpdt/plan/search/search.h"

namespace fpdt {

// The longest sequence for which the search finds a strategy, to 1/64 of itself or better; 0: none.
// `few_layers`: believes what few layers of a step need, which saves seconds where steps are long.
// A search of that length finds a strategy nearly always.
std::int64_t longest_sequence(const Problem& problem, const Pins& pins,
                              const OnProgress& progress = {}, bool few_layers = false);

// The longest of these whose step takes at most `share` longer than with unlimited host memory, to
// 1/64 of itself; 0: none.
std::int64_t longest_within(const Problem& problem, const Pins& pins, double share,
                            const OnProgress& progress = {});

// The shortest sequence worth a look: a row multiple for each rank, or what the model has positions
// for; with the chunks that a given strategy names.
std::int64_t shortest_sequence(const Problem& problem, const Pins& pins);

// Whether a sequence may have so many tokens, apart from memory.
bool possible_length(const Problem& problem, const Pins& pins, std::int64_t tokens);

}  // namespace fpdt
