// How fast the pairs of a rotary embedding turn.
#pragma once

#include <cstdint>

#include "fpdt/schedule/op.h"

namespace fpdt {

// Radians per position of pair `pair` in [0, rotary.rotary / 2): theta^(-2 pair / rotary), scaled
// if factor != 1, and divided by its own of the factors of pairs.
double rotary_frequency(const Rotary& rotary, std::int64_t pair);

}  // namespace fpdt
