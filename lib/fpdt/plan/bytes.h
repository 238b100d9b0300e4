// Bytes by block and category, the first of the memory accounts that are compared (docs/memory.md).
//
// A block's bytes are the whole rings of every buffer that it accesses. `closed_form` sums the
// table of rings, which problem and strategy determine and which never looks at a schedule.
// `sum_of` adds up the buffers that the ops of a schedule access. Tests require both to be equal,
// so that the table knows every access, and compare the table's sizes with the formulas of
// docs/memory.md. Predictions use the closed form only.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <tuple>

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

// Bytes by formula. Blocks that the method does not use are absent, and so are zero entries.
BlockBytes closed_form(const Problem& problem, const Strategy& strategy);

// Bytes summed over the buffers that each block's ops access.
BlockBytes sum_of(const Schedule& schedule);

// Peak bytes of one rank in a space, never below what placement needs: states and inputs, plus the
// heaviest group of blocks whose ops can be in flight together.
struct Prediction {
  Bytes device;
  Bytes host_pinned;
  Bytes host;
  std::string_view device_peak;  // the phase of the step that needs the most of the device
};
Prediction predict(const Problem& problem, const Strategy& strategy);

}  // namespace fpdt
