// Which segment and which class each layer of a strategy is in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fpdt/spec/strategy.h"

namespace fpdt {

struct LayerPlace {
  std::size_t layer_class = 0;
  std::int64_t segment = 0;
  std::int64_t place = 0;   // in the segment, from 0
  std::int64_t length = 1;  // layers of the segment

  [[nodiscard]] bool first() const { return place == 0; }
  [[nodiscard]] bool last() const { return place + 1 == length; }
};

// One for each layer. Precondition: check() finds nothing in the classes and segments.
std::vector<LayerPlace> layer_places(const Strategy& strategy, std::int64_t layers);

// Layers of each segment: the numbers of `segments`, of which the last repeats. The last is shorter
// where they do not fit.
std::vector<std::int64_t> segment_lengths(const Strategy& strategy, std::int64_t layers);

// Layers of the longest segment. If it is 1, no forward is repeated before a backward.
std::int64_t longest_segment(const Strategy& strategy);

// Leaves out layers that repeat others: so many layers in a row, wherever they were, remain
// somewhere in a row, and no rows are new. Layers differ by their class and that of the input of
// their segment, by kind, and by what begins a segment. The model has the layers that remain, with
// their kinds.
inline constexpr std::int64_t kLayersInARow = 3;
void shorten_layers(Strategy& strategy, ModelSpec& model,
                    std::int64_t layers_in_a_row = kLayersInARow);

}  // namespace fpdt
