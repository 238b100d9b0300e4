// A step with the blocks, ops and buffers of another, in short loops.
//
// Which block touches which buffer depends on the discrete choices of a strategy: what is kept on
// the device, repeated, exchanged or streamed. It does not depend on how long the sequence, the
// chunks and the tiles are. So it is found once, in the smallest step that has the same choices.
//
// Kept: up to four chunks, and up to four more whose attention is repeated. Of each tensor all of
// them are on the device, none, the last, or a few of the repeated ones as well. Two tiles of rows,
// words and states; two slices of experts; every three layers in a row; three hops of a ring; two
// micro-batches. Prefetches are at most two ahead: in a longer ring, fewer chunks come back from
// the host.
#pragma once

#include <string>
#include <string_view>

#include "fpdt/spec/attention_kernels.h"
#include "fpdt/spec/strategy.h"

namespace fpdt {

// Not a problem that can run: its tensors have their widths, but its chunks have a few rows.
struct Thumbnail {
  Problem problem;
  Strategy strategy;
  std::vector<LibraryTiles> library;  // of the whole step, as far as it has chunks
  bool operator==(const Thumbnail&) const = default;
};

Thumbnail thumbnail(const Problem& problem, const Strategy& strategy);

// The name of the buffer of a thumbnail that is used as one of the whole step is. Those of a slice
// of experts that the thumbnail does not have are used as those of its last slice are.
std::string stand_in(std::string_view buffer, const Thumbnail& small);

}  // namespace fpdt
