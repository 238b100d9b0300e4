// Which kernels compute attention tiles: the backend's own, or cuDNN's, which accept fewer cases.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fpdt/spec/strategy.h"

namespace fpdt {

// Why the backend's own kernels compute tiles although the cluster uses cuDNN; else "".
std::string why_own_attention(const Problem& problem, const Strategy& strategy);
// Whether cuDNN computes the tiles of layers without a window.
bool fused_attention(const Problem& problem, const Strategy& strategy);
inline constexpr std::string_view kNoWindows = "those of cuDNN compute no windows here";
// Whether tiles of such layers are among them, in a sequence of so many tokens. Kernels of the
// backend compute those of a window.
inline bool in_library(const LayerKind& kind, std::int64_t tokens) {
  return kind.window_in(tokens) == 0;
}

// The longest chunk whose tiles cuDNN accepts, in whole rows of all ranks of a sequence: operands
// must have less than 2^31 elements.
std::int64_t longest_fused_chunk(const Problem& problem, std::int64_t sequence_parallel,
                                 std::int64_t ring = 1, std::int64_t hops = 1);

}  // namespace fpdt
