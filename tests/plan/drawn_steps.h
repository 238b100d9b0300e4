// Steps of tiny models with every choice drawn.
#pragma once

#include <cstdint>

#include "fpdt/spec/strategy.h"

namespace fpdt {

struct DrawnStep {
  Problem problem;
  Strategy strategy;
};

// At most five tokens a rank, in one chunk.
DrawnStep few_tokens(std::uint32_t seed);
// Each tensor has a fraction of its own on the device, in more chunks than a thumbnail has. Some
// are refused by check().
DrawnStep many_chunks(std::uint32_t seed);
// Segments of several lengths and three classes, in more layers than a thumbnail has. Some are
// refused by check().
DrawnStep many_layers(std::uint32_t seed);

}  // namespace fpdt
