// CUDA's dialect on a CPU: one thread block at a time, its threads as fibers.
//
// Replaces nvcc's headers when the host's compiler compiles a kernel file
// (runtime/fpdt/cuda/device.h includes it). A thread runs until it waits for others: at a barrier
// of the block or of its warp, or at an exchange within its warp. A seed determines the order of
// the threads, so a test that passes for several seeds does not depend on one order. The emulator
// detects threads that wait at different barriers, a warp's exchange that some of its lanes have
// left, asynchronous copies that were never awaited (a copy happens when it is awaited), reads of
// shared memory before a write (it begins as NaN), and, under the address sanitizer, every access
// out of bounds.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include "fpdt/base/assert.h"
#include "fpdt/runtime/bf16.h"

#include "queue.h"

// Device code mixes signed and unsigned indices, as CUDA's headers do.
#pragma GCC diagnostic ignored "-Wsign-conversion"

struct CUstream_st;

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
using uint3 = dim3;

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __launch_bounds__(...)
// One block runs at a time on a host thread.
#define __shared__ static thread_local

namespace fpdt::emulator {

// The position of the running thread.
struct Place {
  dim3 grid, block, block_index, thread_index;
};
const Place& place();

// Waits for every thread of the block that has not returned yet.
void block_barrier();
// Waits for every lane of the warp.
void warp_barrier();
// Every lane of the warp provides `bytes` at `mine`. Returns the address of lane 0's bytes; the
// other lanes' follow. Valid until the warp's next exchange.
inline constexpr std::size_t kExchangeBytes = 64;
const std::byte* exchange(const void* mine, std::size_t bytes);
template <class T>
T of_lane(const std::byte* all, unsigned lane) {
  T value;
  std::memcpy(&value, all + lane * kExchangeBytes, sizeof(T));
  return value;
}
unsigned lane();

std::byte* dynamic_shared();
// What a block may ask for: 227 KiB, as on sm_90, unless a test sets less.
std::size_t shared_memory_most();
void set_shared_memory_most(std::size_t bytes);

// Asynchronous copies of the running thread.
void copy_async(void* target, const void* source, std::size_t bytes, bool valid);
void commit_copies();
void await_copies(std::size_t pending);

// Options for the next launches of this host thread.
struct Options {
  std::uint64_t seed = 0;         // of the order of threads
  std::int64_t last_blocks = -1;  // runs only the last blocks of a grid; -1: all
};
void set(const Options& options);

void run(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& thread);

}  // namespace fpdt::emulator

#define threadIdx (::fpdt::emulator::place().thread_index)
#define blockIdx (::fpdt::emulator::place().block_index)
#define blockDim (::fpdt::emulator::place().block)
#define gridDim (::fpdt::emulator::place().grid)

inline void __syncthreads() { fpdt::emulator::block_barrier(); }
inline void __syncwarp(unsigned = 0xFFFFFFFFU) { fpdt::emulator::warp_barrier(); }

template <class T>
T __shfl_sync(unsigned, T value, int source) {
  return fpdt::emulator::of_lane<T>(fpdt::emulator::exchange(&value, sizeof value),
                                    static_cast<unsigned>(source) % 32);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int with) {
  return __shfl_sync(mask, value, static_cast<int>(fpdt::emulator::lane()) ^ with);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by) {
  const unsigned from = fpdt::emulator::lane() + by;
  return __shfl_sync(mask, value, static_cast<int>(from < 32 ? from : fpdt::emulator::lane()));
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by) {
  const unsigned own = fpdt::emulator::lane();
  return __shfl_sync(mask, value, static_cast<int>(own >= by ? own - by : own));
}
inline unsigned __ballot_sync(unsigned, int predicate) {
  const std::byte* all = fpdt::emulator::exchange(&predicate, sizeof predicate);
  unsigned ballot = 0;
  for (unsigned i = 0; i < 32; ++i) {
    if (fpdt::emulator::of_lane<int>(all, i) != 0) ballot |= 1U << i;
  }
  return ballot;
}
inline int __any_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) == 0xFFFFFFFFU ? 1 : 0;
}

// Functions that CUDA has without a namespace and <cmath> does not have.
inline float rsqrtf(float x) { return 1.0F / std::sqrt(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
template <class T>
T __ldg(const T* from) {
  return *from;
}
// CUDA's min and max take integers of the same type.
using std::max;
using std::min;

namespace fpdt::cuda {

struct bf16;
using Stream = CUstream_st*;

unsigned pack_bf16(float low, float high);
inline float fast_exp2(float x) { return std::exp2(x); }
void mma_bf16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1);
template <bool transposed>
void load_matrices(unsigned (&r)[4], const void* shared);

inline void copy_async(void* shared, const void* global, bool valid) {
  emulator::copy_async(shared, global, 16, valid);
}
inline void commit_copies() { emulator::commit_copies(); }
template <int pending>
void await_copies() {
  emulator::await_copies(pending);
}

inline std::size_t shared_memory_most() { return emulator::shared_memory_most(); }
template <class T>
T* dynamic_shared() {
  return reinterpret_cast<T*>(emulator::dynamic_shared());
}

// Adds the words of a kernel's argument. Padding may hold parts of old addresses.
template <class T>
void add_words(T argument, emulator::Given& words) {
  static_assert(std::is_trivially_copyable_v<T>);
#if __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding(&argument);
#endif
  for (std::size_t at = 0; at + sizeof(void*) <= sizeof(T); at += sizeof(void*)) {
    std::memcpy(&words.emplace_back(), reinterpret_cast<const std::byte*>(&argument) + at,
                sizeof(void*));
  }
}

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
            Stream stream, Arguments&&... arguments) {
  const std::tuple<Parameters...> copies(static_cast<Parameters>(arguments)...);
  emulator::Given given;
  std::apply([&](const auto&... argument) { (add_words(argument, given), ...); }, copies);
  emulator::submit(stream, given, [=] {
    emulator::run(grid, block, shared_bytes, [&] { std::apply(kernel, copies); });
  });
}

}  // namespace fpdt::cuda
