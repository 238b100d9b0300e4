// Sums over columns and whole buffers, and the optimizer.
#include <cfloat>
#include <cmath>

#include "fpdt/base/math.h"
#include "fpdt/cuda/kernels.h"
#include "fpdt/cuda/packs.h"
#include "fpdt/cuda/sums.h"

namespace fpdt::cuda {
namespace {

constexpr int kThreads = 256;

// ---- Sums over columns ----

constexpr int kDeep = kThreads / kWarp;  // rows that a block reads at a time

// Napkin: reads sizeof(T) bytes per element, once; bound by memory. Partial sums are written and
// read once for every 64 rows or more: at most 1/16 of that.
//
// A block adds `slab` rows of 32 packs of columns. Its warp y takes rows y, y + 8, ... in ascending
// order. Then the warps are added in order.
template <class T>
__global__ void column_partials(const T* source, std::int64_t rows, std::int64_t width,
                                std::int64_t slab, bool packed, float* partials) {
  constexpr int N = kPack<T>;
  __shared__ float room[kDeep][kWarp * N];
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kWarp * N;
  const std::int64_t column = first + threadIdx.x * N;
  const std::int64_t begin = blockIdx.y * slab;
  const std::int64_t end = min(rows, begin + slab);
  float sums[N] = {};
  with_whole(packed, [&](auto whole) {
    if (column >= width) return;
#pragma unroll 4
    for (std::int64_t row = begin + threadIdx.y; row < end; row += kDeep) {
      float values[N];
      load_values(whole, source + row * width + column, width - column, values);
#pragma unroll
      for (int i = 0; i < N; ++i) sums[i] += values[i];
    }
  });
#pragma unroll
  for (int i = 0; i < N; ++i) room[threadIdx.y][threadIdx.x * N + i] = sums[i];
  __syncthreads();
  const unsigned thread = threadIdx.y * kWarp + threadIdx.x;
  if (thread >= kWarp * N || first + thread >= width) return;
  float sum = 0;
#pragma unroll
  for (int y = 0; y < kDeep; ++y) sum += room[y][thread];
  partials[blockIdx.y * width + first + thread] = sum;
}

__global__ void add_slabs(const float* partials, std::int64_t slabs, std::int64_t width, float* out,
                          bool accumulate) {
  const std::int64_t column = global_thread();
  if (column >= width) return;
  float sum = 0;
#pragma unroll 8
  for (std::int64_t slab = 0; slab < slabs; ++slab) sum += partials[slab * width + column];
  put(out + column, sum, accumulate);
}

// ---- Sums over buffers ----

// Napkin: sizeof(T) bytes per element; bound by memory. Double precision costs a conversion and a
// fused multiply-add per element. If a multiprocessor converts 16 per cycle, as on sm_80, that is
// 100 us per GiB of bf16 on 132 of them at 1.7 GHz, against 220 us of memory time at 4.8 TB/s.
//
// A block adds elements [each * b, each * (b+1)).
template <class T>
__global__ void square_partials(const T* source, std::int64_t count, std::int64_t each, bool packed,
                                double* partials) {
  constexpr int N = kPack<T>;
  __shared__ double room[kWarp];
  const std::int64_t begin = blockIdx.x * each;
  const std::int64_t end = min(count, begin + each);
  double sum = 0;
  with_whole(packed && end == begin + each, [&](auto whole) {
#pragma unroll 4
    for (std::int64_t at = begin + threadIdx.x * N; at < end; at += kThreads * N) {
      float values[N];
      load_values(whole, source + at, end - at, values);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
      }
    }
  });
  sum = block_sum(sum, room);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void finish_sum(const double* partials, std::int64_t count, const float* scale,
                           float* out, bool accumulate) {
  __shared__ double room[kWarp];
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) sum += partials[i];
  sum = block_sum(sum, room);
  if (threadIdx.x != 0) return;
  if (scale != nullptr) sum *= static_cast<double>(scale[0]);
  put(out, static_cast<float>(sum), accumulate);
}

// ---- The optimizer ----

struct Constants {
  float beta1, beta2, epsilon, decay, clip;
};

// Napkin: reads gradient, master, m and v; writes master, m and v in f32 and the parameter in bf16.
// That is 30 bytes per element and about 60 instructions with the three divisions and the root;
// bound by memory.
//
// Outputs may alias inputs: a thread reads all its elements before it writes.
template <class G, class P>
__global__ void adamw(const G* grad, const float* norm, const float* step, const float* master,
                      const float* m, const float* v, float* master_out, float* m_out, float* v_out,
                      P* param, std::int64_t count, bool packed, Constants c) {
  constexpr int N = 4;
  const std::int64_t at = global_thread() * N;
  if (at >= count) return;
  const std::int64_t left = count - at;
  float g[N], p[N], m1[N], v1[N];
  with_whole(packed && left >= N, [&](auto whole) {
    load_values(whole, grad + at, left, g);
    load_values(whole, master + at, left, p);
    load_values(whole, m + at, left, m1);
    load_values(whole, v + at, left, v1);
  });
  const float squared_norm = norm[0];
  if (fabsf(squared_norm) <= FLT_MAX) {  // false for a NaN
    const float length = sqrtf(squared_norm);
    const float coefficient = c.clip > 0 && length > c.clip ? c.clip / length : 1.0F;
    const float rate = step[0], correction1 = step[1], correction2 = step[2];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float clipped = g[i] * coefficient;
      m1[i] = c.beta1 * m1[i] + (1.0F - c.beta1) * clipped;
      v1[i] = c.beta2 * v1[i] + (1.0F - c.beta2) * clipped * clipped;
      const float direction = (m1[i] / correction1) / (sqrtf(v1[i] / correction2) + c.epsilon);
      p[i] -= rate * (direction + c.decay * p[i]);
    }
  }
  with_whole(packed && left >= N, [&](auto whole) {
    store_values(whole, master_out + at, left, p);
    store_values(whole, m_out + at, left, m1);
    store_values(whole, v_out + at, left, v1);
    if (param != nullptr) store_values(whole, param + at, left, p);
  });
}

}  // namespace

void execute(const ColumnSum& op, const Frame& frame) {
  const View source = frame.view(op, op.source);
  const View out = frame.view(op, op.out);
  FPDT_ASSERT(source.elements >= op.rows * op.width && out.elements >= op.width);
  with_float_type(source.dtype, [&](auto type) {
    using T = decltype(type);
    // About a thousand blocks with at least 64 rows each.
    const std::int64_t across = div_ceil(op.width, kWarp * kPack<T>);
    const std::int64_t most = std::min(div_ceil(1024, across), div_ceil(op.rows, 64));
    const std::int64_t slab = div_ceil(op.rows, most);
    const std::int64_t slabs = div_ceil(op.rows, slab);
    auto* partials = frame.partial<float>(slabs * op.width);
    launch(column_partials<T>, dim3(grid_of(across), grid_of(slabs)), dim3(kWarp, kDeep), 0,
           frame.stream, elements<const T>(source), op.rows, op.width, slab,
           packs(source, op.width), partials);
    launch(add_slabs, grid_of(op.width, kThreads), kThreads, 0, frame.stream, partials, slabs,
           op.width, elements<float>(out), accumulates(out));
  });
}

void add_partials(const double* partials, std::int64_t count, const float* scale, const View& out,
                  Stream stream) {
  FPDT_ASSERT(out.dtype == Dtype::f32 && out.elements >= 1);
  launch(finish_sum, 1, kThreads, 0, stream, partials, count, scale, elements<float>(out),
         accumulates(out));
}

void execute(const SquaredNorm& op, const Frame& frame) {
  const View source = frame.view(op, op.source);
  with_float_type(source.dtype, [&](auto type) {
    using T = decltype(type);
    // At most 4096 blocks: four times as many as a large GPU runs at once.
    const std::int64_t each = round_up(div_ceil(source.elements, 4096), kThreads * kPack<T>);
    const std::int64_t blocks = div_ceil(source.elements, each);
    auto* partials = frame.partial<double>(blocks);
    launch(square_partials<T>, grid_of(blocks), kThreads, 0, frame.stream,
           elements<const T>(source), source.elements, each, packs(source), partials);
    add_partials(partials, blocks, nullptr, frame.view(op, op.sum), frame.stream);
  });
}

void execute(const AdamW& op, const Frame& frame) {
  const View grad = frame.view(op, op.grad), param = frame.view(op, op.param);
  const View norm = frame.view(op, op.norm), step = frame.view(op, op.step);
  const View master = frame.view(op, op.master), master_out = frame.view(op, op.master_out);
  const View m = frame.view(op, op.m), m_out = frame.view(op, op.m_out);
  const View v = frame.view(op, op.v), v_out = frame.view(op, op.v_out);
  const std::int64_t count = master.elements;
  bool packed = true;
  for (const View& view : {grad, master, m, v, master_out, m_out, v_out, param}) {
    FPDT_ASSERT(!present(view) || view.elements >= count);
    FPDT_ASSERT(!accumulates(view));
    packed = packed && packs(view);
  }
  for (const View& view : {master, m, v, master_out, m_out, v_out}) {
    FPDT_ASSERT(view.dtype == Dtype::f32);
  }
  FPDT_ASSERT(norm.dtype == Dtype::f32 && step.dtype == Dtype::f32 && step.elements >= 4);
  const Constants constants{static_cast<float>(op.beta1), static_cast<float>(op.beta2),
                            static_cast<float>(op.epsilon), static_cast<float>(op.weight_decay),
                            static_cast<float>(op.clip)};
  with_float_type(grad.dtype, [&](auto of_grad) {
    with_float_type(param.dtype, [&](auto of_param) {
      using G = decltype(of_grad);
      using P = decltype(of_param);
      launch(adamw<G, P>, grid_of(div_ceil(count, kThreads * 4)), kThreads, 0, frame.stream,
             elements<const G>(grad), elements<const float>(norm), elements<const float>(step),
             elements<const float>(master), elements<const float>(m), elements<const float>(v),
             elements<float>(master_out), elements<float>(m_out), elements<float>(v_out),
             elements<P>(param), count, packed, constants);
    });
  });
}

}  // namespace fpdt::cuda
