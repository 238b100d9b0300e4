// Values by N at a time: in one access where they are aligned and all there, one by one where not,
// as in rows of an odd width or at the end of an array. What is computed from them, and in which
// order, is the same either way.
//
// Which of the two is decided before a loop, by `with_whole`, so that the loop has no branches and
// the loads of several rounds are on their way together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "fpdt/cuda/device.h"

namespace fpdt::cuda {

// As many values as one access of 16 bytes holds, of the widest of these types.
template <class... T>
inline constexpr int kCommonPack = std::min({kPack<T>...});

// Whether every row of `width` values of the view begins at a multiple of 16 bytes. Then packs of
// its rows are whole.
inline bool packs(const View& view, std::int64_t width) {
  return reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0 &&
         width * dtype_bytes(view.dtype) % 16 == 0;
}
// The same of an array without rows: its packs are whole but for the last.
inline bool packs(const View& view) { return packs(view, 16); }

// Calls f(std::true_type) where packs are whole, f(std::false_type) where they may not be.
template <class F>
__device__ __forceinline__ void with_whole(bool whole, F&& f) {
  if (whole) {
    f(std::true_type{});
  } else {
    f(std::false_type{});
  }
}

// to = from[0, N); unless `whole`, only [0, count) exist, and `rest` stands for the others.
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

// to[0, N) = values, or += values; unless `whole`, only [0, count) exist.
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

// The grid in which each of `blocks` blocks has work of its own.
inline unsigned grid_of(std::int64_t blocks) {
  FPDT_ASSERT(blocks > 0 && blocks <= std::numeric_limits<std::int32_t>::max());
  return static_cast<unsigned>(blocks);
}

}  // namespace fpdt::cuda
