// Code shared by kernels that go row by row: operands, sums over a block, sums over blocks.
//
// Such a kernel is a template over the types of its large operands and over N, the elements of one
// load or store. Its fast instances need rows that begin at multiples of 16 bytes. They take
// operands that are all f32 (N = 4) or all bf16 (N = 8), and the mixtures that every step has. The
// instance for `Any` and N = 1 takes the rest: other mixtures, odd offsets, odd widths. Offsets
// count elements. Operands may alias element by element: a thread reads an element before it
// overwrites it, and no other thread reads it.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <type_traits>

#include "fpdt/base/math.h"
#include "fpdt/cuda/device.h"

namespace fpdt::cuda {

// f32 or bf16, looked up at each access.
struct Any {};

template <class T>
struct Source {
  const T* data;

  template <int N>
  __device__ __forceinline__ void load(std::int64_t at, float (&to)[N]) const {
    load_pack<N>(data + at, to);
  }
};
template <>
struct Source<Any> {
  const void* data;
  bool wide;  // f32

  template <int N>
  __device__ __forceinline__ void load(std::int64_t at, float (&to)[N]) const {
    if (!wide) return load_pack<N>(static_cast<const bf16*>(data) + at, to);
    constexpr int kPart = N < kPack<float> ? N : kPack<float>;
#pragma unroll
    for (int i = 0; i < N; i += kPart) {
      float part[kPart];
      load_pack<kPart>(static_cast<const float*>(data) + at + i, part);
#pragma unroll
      for (int j = 0; j < kPart; ++j) to[i + j] = part[j];
    }
  }
};

template <class T>
struct Sink {
  T* data;
  bool accumulate;

  template <int N>
  __device__ __forceinline__ void store(std::int64_t at, const float (&values)[N]) const {
    put_pack<N>(data + at, values, accumulate);
  }
};
template <>
struct Sink<Any> {
  void* data;
  bool wide, accumulate;

  __device__ __forceinline__ void store(std::int64_t at, const float (&values)[1]) const {
    if (wide) return put(static_cast<float*>(data) + at, values[0], accumulate);
    put(static_cast<bf16*>(data) + at, values[0], accumulate);
  }
};

// Made from a view, which may be absent.
template <class T>
Source<T> source(const View& view) {
  if constexpr (std::is_same_v<T, Any>) {
    return {view.data, view.dtype == Dtype::f32};
  } else {
    return {elements<const T>(view)};
  }
}
template <class T>
Sink<T> sink(const View& view) {
  if constexpr (std::is_same_v<T, Any>) {
    return {view.data, view.dtype == Dtype::f32, accumulates(view)};
  } else {
    return {elements<T>(view), accumulates(view)};
  }
}

// The types of the large operands, and the elements of a load.
template <class T, int N>
struct Instance {
  using Type = T;
  static constexpr int kElements = N;
};

// Whether the views begin at multiples of 16 bytes. Absent views do.
inline bool aligned(std::initializer_list<View> views) {
  return std::all_of(views.begin(), views.end(), [](const View& view) {
    return reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0;
  });
}
inline bool all_are(Dtype dtype, std::initializer_list<View> views) {
  return std::all_of(views.begin(), views.end(),
                     [dtype](const View& view) { return !present(view) || view.dtype == dtype; });
}

// Calls f with the Instance for these large operands, whose rows have `width` elements. Uses the
// general instance unless `fast`.
template <class F>
void with_instance(bool fast, std::initializer_list<View> large, std::int64_t width, F&& f) {
  fast = fast && aligned(large);
  if (fast && all_are(Dtype::f32, large) && width % kPack<float> == 0) {
    f(Instance<float, kPack<float>>{});
  } else if (fast && all_are(Dtype::bf16, large) && width % kPack<bf16> == 0) {
    f(Instance<bf16, kPack<bf16>>{});
  } else {
    f(Instance<Any, 1>{});
  }
}

// The same for operands of two types, f(from, to). Both have the elements of a load that fit the
// wider one.
template <class F>
void with_instances(std::initializer_list<View> from, std::initializer_list<View> to,
                    std::int64_t width, F&& f) {
  const bool narrow = all_are(Dtype::bf16, from) && all_are(Dtype::bf16, to);
  const int pack = narrow ? kPack<bf16> : kPack<float>;
  const auto alike = [](std::initializer_list<View> views) {
    return all_are(Dtype::f32, views) || all_are(Dtype::bf16, views);
  };
  if (!aligned(from) || !aligned(to) || width % pack != 0 || !alike(from) || !alike(to)) {
    return f(Instance<Any, 1>{}, Instance<Any, 1>{});
  }
  const auto type = [](std::initializer_list<View> views) {
    return all_are(Dtype::f32, views) ? Dtype::f32 : Dtype::bf16;
  };
  with_float_type(type(from), [&](auto s) {
    with_float_type(type(to), [&](auto t) {
      constexpr int N = std::min(kPack<decltype(s)>, kPack<decltype(t)>);
      f(Instance<decltype(s), N>{}, Instance<decltype(t), N>{});
    });
  });
}

// K sums over a block of whole warps. Every thread must call it, and gets the sums, with the same
// bits on every run. It has one barrier, so calls must alternate between two rooms of shared
// memory, [K][32] each.
template <int K>
__device__ __forceinline__ void block_sums(float (&values)[K], float* room) {
#pragma unroll
  for (int k = 0; k < K; ++k) values[k] = warp_sum(values[k]);
  if (blockDim.x == kWarp) return;
  const unsigned lane = threadIdx.x % kWarp;
  if (lane == 0) {
#pragma unroll
    for (int k = 0; k < K; ++k) room[k * kWarp + threadIdx.x / kWarp] = values[k];
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < K; ++k) {
    values[k] = warp_sum(lane < blockDim.x / kWarp ? room[k * kWarp + lane] : 0.0F);
  }
}

// target[width] (+)= the sum over i in [0, count) of partials[i * stride ...], in f32. Only `count`
// decides the order. Defined in kernels_norm.cu.
void add_column_partials(const float* partials, std::int64_t count, std::int64_t stride,
                         std::int64_t width, const View& target, Stream stream);

}  // namespace fpdt::cuda
