// Methods of the field, as named regions of the space of strategies. Lowering, verifier, simulator,
// executor and pictures serve every point of it and know no name.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "fpdt/spec/strategy.h"

namespace fpdt {

// The needless work and memory of a published code beside the schedule of its strategy. The values
// are facts about that code, each with its source. They belong to no strategy: nothing searches or
// executes them (methods/published.h).
struct Waste {
  std::int64_t hidden_tensors = 0;  // of S/P rows by the hidden size, whole on the device
  std::int64_t rotary_bytes = 0;    // of each position of the sequence and rotated element
  std::int64_t logit_bytes = 0;     // of each logit of the rank
  // Bytes of each query, key and head of the full square. Attention without a fused kernel stores
  // them for backward, and writes and reads them at least once.
  std::int64_t score_bytes = 0;
  // A layer that stores everything keeps what a schedule makes again in backward, the outputs of
  // the activation and of the second norm, and the masks of two dropouts, which none has.
  bool keeps_what_can_be_made = false;
  bool pinned_powers_of_two = false;  // blocks of pinned memory are rounded up
  // Layer inputs go to pageable memory and come back while the device waits. They take this many
  // times as long as from pinned memory.
  double pageable_copies = 0;
  double host_seconds = 0;  // in which lanes idle, for each row of tiles in each pass over a layer
};

// How the ranks of a replica share a layer: each has some heads of all queries, or some queries of
// all heads, or the columns of some heads of each product; or they form rings across those that
// share heads. Heads must divide; queries do for any number of ranks, which form one ring. One rank
// shares nothing, and no point of it is named after methods that share anything but heads.
enum class Sharing : std::uint8_t { heads, queries, products, grid };

struct Method {
  std::string_view name;    // of flags and JSON
  std::string_view title;   // in sentences
  std::string_view source;  // the paper and the code that define it
  Sharing sharing = Sharing::heads;
  // Whether a sound strategy is in the region.
  bool (*holds)(const Problem& problem, const Strategy& strategy);
  // The strategy with the residency that the region demands of its tensors. It is in the region if
  // its chunks allow that.
  Strategy (*entered)(const Problem& problem, Strategy strategy);
  // The choices of the published implementation, over as many ranks as the heads (where they are
  // shared) and the sequences of a step allow. They may exceed the budgets.
  Strategy (*published)(const Problem& problem, std::int64_t batch);
  Waste waste;  // of that implementation
};

// The waste that these methods inherit from DeepSpeed, and the first of them from
// Megatron-DeepSpeed.
//
// DeepSpeed's pinned copies of layer inputs are 6.4 times faster than the pageable ones of the time
// (its commit 858e91e).
inline constexpr double kPageableCopies = 6.4;
// The host's time: Python, and waits for the device. FPDT makes streams and waits for them at every
// tile, and for all ranks at every chunk. Fitted on panels a, c, e of
// tests/published/fpdt-figure4.yaml.
inline constexpr double kHostSeconds = 0.040;

// Whether a model has points in the region: experts are gathered whole, and not divided by columns,
// and a joint norm needs all heads.
inline bool serves(const Method& method, const ModelSpec& model) {
  return method.sharing != Sharing::products || model.uncut().empty();
}

// A special region stands before the general one that contains it.
std::span<const Method* const> methods();
// By name; nullptr: there is none.
const Method* method_named(std::string_view name);
// The method in whose region a strategy lies; nullptr for a point without a name.
const Method* method_of(const Problem& problem, const Strategy& strategy);

}  // namespace fpdt
