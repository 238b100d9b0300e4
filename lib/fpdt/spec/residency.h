// What becomes of the input and the attention output of each layer between forward and backward.
//
// Backward of a layer needs both. A chunk of them stays on the device, goes to the host, or is
// dropped and computed again.
#pragma once

#include <cstdint>
#include <vector>

#include "fpdt/base/words.h"
#include "fpdt/spec/layer_places.h"
#include "fpdt/spec/strategy.h"

namespace fpdt {

enum class Fate : std::uint8_t { again, host, device };
constexpr auto words_of(Fate) { return word_list("again", "host", "device"); }

// Chunks in a row with one fate.
struct ChunkRun {
  std::int64_t chunks = 0;
  Fate fate = Fate::again;
  bool operator==(const ChunkRun&) const = default;
};

struct LayerResidency {
  LayerPlace place;
  std::vector<ChunkRun> input, output;  // of all chunks of the sequence, from the first
  std::int64_t kind = 0;                // of the layer, among those of the model
};

// One for each layer. Precondition: check(problem, strategy) finds nothing.
std::vector<LayerResidency> residencies(const Problem& problem, const Strategy& strategy);

// How many chunks have this fate.
std::int64_t chunks_with(const std::vector<ChunkRun>& runs, Fate fate);

}  // namespace fpdt
