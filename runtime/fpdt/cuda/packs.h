// Values in packs of N: one access if they are aligned and complete, else one by one, as in rows of
// an odd width or at the end of an array. Both ways compute the same values in the same order.
//
// `with_whole` decides between them before a loop. So the loop has no branches, and the loads of
// several rounds are in flight together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "fpdt/cuda/device.h"

namespace fpdt::cuda {

// The number of values of the widest of these types in one access of 16 bytes.
template <class... T>
inline constexpr int kCommonPack = std::min({kPack<T>...});

// Whether every row of `width` values of the view begins at a multiple of 16 bytes. If so, packs of
// its rows are whole.
inline bool packs(const View& view, std::int64_t width) {
  return reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0 &&
         width * dtype_bytes(view.dtype) % 16 == 0;
}
// The same for an array without rows: all packs but the last are whole.
inline bool packs(const View& view) { return packs(view, 16); }

// Calls f(std::true_type) if packs are whole, and f(std::false_type) if they may not be.
template <class F>
__device__ __forceinline__ void with_whole(bool whole, F&& f) {
  if (whole) {
    f(std::true_type{});
  } else {
    f(std::false_type{});
  }
}

// to = from[0, N). Unless `whole`, only [0, count) exist, and `rest` replaces the others.
template <bool whole, int N, class T>
__device__ __forceinline__ void load_values(std::bool_constant<whole>, const T* from,
                                            std::int64_t count, float (&to)[N], float rest = 0.0F) {
  if constexpr (whole) {
    load_pack(from, to);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = i < count ? to_float(from[i]) : rest;
  }
}

// to[0, N) = values, or += values. Unless `whole`, only [0, count) exist.
template <bool whole, int N, class T>
__device__ __forceinline__ void store_values(std::bool_constant<whole>, T* to, std::int64_t count,
                                             const float (&values)[N], bool accumulate = false) {
  if constexpr (whole) {
    put_pack(to, values, accumulate);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (i < count) put(to + i, values[i], accumulate);
    }
  }
}

// A grid in which each of `blocks` blocks has its own work.
inline unsigned grid_of(std::int64_t blocks) {
  FPDT_ASSERT(blocks > 0 && blocks <= std::numeric_limits<std::int32_t>::max());
  return static_cast<unsigned>(blocks);
}

}  // namespace fpdt::cuda
