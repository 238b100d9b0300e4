// Bytes of a strategy, the first of the memory accounts that are compared (docs/memory.md).
//
// A block's bytes are the whole rings of every buffer that its ops access. Sizes come from the
// buffers that a lowering declares. Which block accesses which, and which calls may be in flight
// together, are found in a thumbnail of the step, once for all strategies with the same discrete
// choices. Tests require the sums to be those of whole schedules, and never below what placement
// needs.
#pragma once

#include <map>
#include <string>

#include "fpdt/base/units.h"
#include "fpdt/schedule/schedule.h"
#include "fpdt/spec/strategy.h"

namespace fpdt {

struct BytesKey {
  std::string block;
  MemorySpace space = MemorySpace::device;
  Category category = Category::activations;
  auto operator<=>(const BytesKey&) const = default;
};
using BlockBytes = std::map<BytesKey, Bytes>;

// Bytes by block, without a schedule. Blocks that the method does not use are absent, and so are
// zero entries.
BlockBytes block_bytes(const Problem& problem, const Strategy& strategy);

// Bytes summed over the buffers that each block's ops access.
BlockBytes sum_of(const Schedule& schedule);

// Peak bytes of one rank in a space, never below what placement needs: states and inputs, and the
// most that may be alive in two calls that compute one after the other.
struct Prediction {
  Bytes device;
  Bytes host_pinned;
  Bytes host;
  std::string device_peak;  // the blocks of the two calls that need the most of the device
};
Prediction predict(const Problem& problem, const Strategy& strategy);

}  // namespace fpdt
