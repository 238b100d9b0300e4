// The dialect of the kernels: CUDA C++, and the few helpers that they share.
//
// A kernel file is compiled twice: by nvcc for the GPU, and by the host's compiler against an
// emulator of one thread block (tests/cuda/emulator), on which tests run it. So kernels are
// launched by `launch`, shared memory of a size known at run time comes from `dynamic_shared`, and
// everything that needs inline assembly is here. The rest is plain CUDA.
//
// Values are f32 in registers; bf16 is converted on load and rounded to nearest even on store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "fpdt/cuda/shared_memory.h"
#include "fpdt/cuda/status.h"
#else
#include "simt.h"
#endif

#include "fpdt/base/assert.h"
#include "fpdt/cuda/frame.h"
#include "fpdt/schedule/buffer.h"

namespace fpdt::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;
// A block has 48 KiB unasked, for static and dynamic shared memory together. Kernels that have both
// take at most so much static memory.
inline constexpr std::size_t kStaticShared = 1 << 10;
inline constexpr std::size_t kDynamicShared = (48 << 10) - kStaticShared;

// The upper half of a float.
struct bf16 {
  std::uint16_t bits;
};

__device__ __forceinline__ float to_float(float value) { return value; }
template <class T>
__device__ __forceinline__ T from_float(float value);
template <>
__device__ __forceinline__ float from_float<float>(float value) {
  return value;
}

#if defined(__CUDACC__)

__device__ __forceinline__ float to_float(bf16 value) {
  return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
}
template <>
__device__ __forceinline__ bf16 from_float<bf16>(float value) {
  return {__bfloat16_as_ushort(__float2bfloat16_rn(value))};
}
// Packs {low, high} as two bf16 into one register.
__device__ __forceinline__ unsigned pack_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const unsigned*>(&pair);
}

// 2^x; x = -infinity gives 0.
__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// d += a * b on the tensor cores, for a warp: a bf16 [16,16] row-major, b bf16 [16,8] column-major,
// d f32 [16,8]. With g = lane / 4 and t = lane % 4, a register holds two bf16, the lower index in
// the lower half: a0 = A[g][2t..], a1 = A[g+8][2t..], a2 = A[g][2t+8..], a3 = A[g+8][2t+8..]; b0 =
// B[2t..][g], b1 = B[2t+8..][g]; d0, d1 = D[g][2t..], d2, d3 = D[g+8][2t..] (PTX ISA,
// mma.m16n8k16).
__device__ __forceinline__ void mma_bf16(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                         unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ unsigned shared_address(const void* shared) {
  return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}
// Loads four 8x8 matrices of bf16 from shared memory. Lane 8*i + r gives the address (of 16 bytes,
// aligned) of row r of matrix i. Register i of lane l receives M_i[l/4][2*(l%4)..+1] or, if
// `transposed`, {M_i[2*(l%4)][l/4], M_i[2*(l%4)+1][l/4]}.
template <bool transposed>
__device__ __forceinline__ void load_matrices(unsigned (&r)[4], const void* shared) {
  if constexpr (transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(shared))
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(shared))
                 : "memory");
  }
}

// Starts a copy of 16 aligned bytes from global to shared memory, without waiting. Writes zeros if
// not `valid`, and then does not read `global`.
__device__ __forceinline__ void copy_async(void* shared, const void* global, bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(shared_address(shared)), "l"(global), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::); }
// Waits until at most `pending` of this thread's groups of copies are incomplete.
template <int pending>
__device__ __forceinline__ void await_copies() {
  asm volatile("cp.async.wait_group %0;" : : "n"(pending) : "memory");
}

template <class T>
__device__ __forceinline__ T* dynamic_shared() {
  extern __shared__ __align__(128) std::byte fpdt_dynamic_shared[];
  return reinterpret_cast<T*>(fpdt_dynamic_shared);
}

// Launches a kernel on the stream. Throws if the launch itself fails (status.h).
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
            Stream stream, Arguments&&... arguments) {
  if (shared_bytes > kDynamicShared) allow_shared_memory(reinterpret_cast<const void*>(kernel));
  cudaLaunchConfig_t configuration{};
  configuration.gridDim = grid;
  configuration.blockDim = block;
  configuration.dynamicSmemBytes = shared_bytes;
  configuration.stream = stream;
  check(cudaLaunchKernelEx(&configuration, kernel,
                           static_cast<Parameters>(std::forward<Arguments>(arguments))...),
        "launch of a kernel");
}

#endif

#if !defined(__CUDACC__)
inline float to_float(bf16 value) { return widen(value.bits); }
template <>
inline bf16 from_float<bf16>(float value) {
  return {narrow(value)};
}
#endif

// N values that are loaded or stored in one access of at most 16 bytes.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T values[N];
};
// The number of values in 16 bytes.
template <class T>
inline constexpr int kPack = 16 / static_cast<int>(sizeof(T));

template <int N, class T>
__device__ __forceinline__ void load_pack(const T* from, float (&to)[N]) {
  const auto pack = *reinterpret_cast<const Pack<T, N>*>(from);
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = to_float(pack.values[i]);
}
template <int N, class T>
__device__ __forceinline__ void store_pack(T* to, const float (&from)[N]) {
  Pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) pack.values[i] = from_float<T>(from[i]);
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

// target = value, or target += value.
template <class T>
__device__ __forceinline__ void put(T* target, float value, bool accumulate) {
  *target = from_float<T>(accumulate ? to_float(*target) + value : value);
}

// The same for N values in one access.
template <int N, class T>
__device__ __forceinline__ void put_pack(T* target, const float (&values)[N], bool accumulate) {
  if (!accumulate) return store_pack<N>(target, values);
  float sums[N];
  load_pack<N>(target, sums);
#pragma unroll
  for (int i = 0; i < N; ++i) sums[i] += values[i];
  store_pack<N>(target, sums);
}

__device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x % kWarp); }
__device__ __forceinline__ std::int64_t global_thread() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ std::int64_t global_threads() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

// Sums and maxima over a warp. Every lane gets the result, with the same bits on every run.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}
__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, step));
  }
  return value;
}
// Sum over a block of whole warps, at most 1024 threads. Every thread must call it, and gets the
// sum. `room` is 32 floats of shared memory, which may be reused after the next __syncthreads.
__device__ __forceinline__ float block_sum(float value, float* room) {
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned warp = threadIdx.x / kWarp;
  const float own = warp_sum(value);
  if (lane == 0) room[warp] = own;
  __syncthreads();
  return warp_sum(lane < (blockDim.x + kWarp - 1) / kWarp ? room[lane] : 0.0F);
}

// Blocks of a one-dimensional grid over `items`, with `each` of them per block. If `most` limits
// the grid, a kernel that loops with the stride of the grid serves the rest.
inline unsigned grid_of(std::int64_t items, std::int64_t each, std::int64_t most = 1 << 30) {
  FPDT_ASSERT(items > 0 && each > 0);
  const std::int64_t blocks = (items + each - 1) / each;
  return static_cast<unsigned>(blocks < most ? blocks : most);
}

// Calls f with a value of the view's element type: float or bf16.
template <class F>
void with_float_type(Dtype dtype, F&& f) {
  FPDT_ASSERT(dtype != Dtype::i32);
  if (dtype == Dtype::f32) {
    f(float{});
  } else {
    f(bf16{});
  }
}

template <class T>
T* elements(const View& view) {
  return reinterpret_cast<T*>(view.data);
}

}  // namespace fpdt::cuda
