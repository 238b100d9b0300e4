// Which kernels compute attention tiles: the backend's own, or cuDNN's, which accept fewer cases.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/spec/strategy.h"

namespace fpdt {

// Why the backend's own kernels compute tiles although the cluster uses cuDNN; else "".
std::string why_own_attention(const Problem& problem, const Strategy& strategy);
// Whether cuDNN computes attention tiles.
bool fused_attention(const Problem& problem, const Strategy& strategy);
inline constexpr std::string_view kNoWindows = "those of cuDNN compute no windows here";

// cuDNN computes the tiles of which a window hides no key from any query; the backend's own kernels
// compute the others. In a sequence of so many tokens, cuDNN's are those of a chunk's queries with
// the keys of this many chunks of c tokens, from their own one back.
inline std::int64_t library_chunks(const LayerKind& kind, std::int64_t tokens, std::int64_t c) {
  const std::int64_t window = kind.window_in(tokens);
  return (window == 0 ? tokens + c - 1 : window) / c;
}

// The tiles of a kind of layers that cuDNN computes.
struct LibraryTiles {
  std::int64_t chunks = 0;  // as above
  // A window is shorter than a chunk, and cuDNN computes the tiles whose queries and keys are the
  // same rows (`cudnn_windows`). In others that it cuts some queries see no key, and would get NaN.
  bool diagonal = false;
  auto operator<=>(const LibraryTiles&) const = default;

  [[nodiscard]] bool any() const { return chunks > 0 || diagonal; }
};
// By kind of layers.
std::vector<LibraryTiles> library_tiles(const Problem& problem, const Strategy& strategy);

// The longest chunk whose tiles cuDNN accepts, in whole rows of all ranks of a sequence: operands
// must have less than 2^31 elements.
std::int64_t longest_fused_chunk(const Problem& problem, std::int64_t sequence_parallel,
                                 std::int64_t ring = 1, std::int64_t hops = 1);

}  // namespace fpdt
