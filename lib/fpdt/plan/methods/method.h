// Methods of the field, as named regions of the space of strategies. Lowering, verifier, simulator,
// executor and pictures serve every point of it and know no name.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "fpdt/spec/strategy.h"

namespace fpdt {

struct Method {
  std::string_view name;    // of flags and JSON
  std::string_view title;   // in sentences
  std::string_view source;  // the paper and the code that define it
  // Whether a sound strategy is in the region.
  bool (*holds)(const Problem& problem, const Strategy& strategy);
  // The choices of the published implementation, over as many ranks as the heads and the sequences
  // of a step allow. They may exceed the budgets.
  Strategy (*published)(const Problem& problem, std::int64_t batch);
};

// Ordered from the most to the least general.
std::span<const Method* const> methods();
// By name; nullptr: there is none.
const Method* method_named(std::string_view name);
// The method in whose region a strategy lies; nullptr for a point without a name.
const Method* method_of(const Problem& problem, const Strategy& strategy);

}  // namespace fpdt
