// Sums over more numbers than one block adds. Each block writes a partial sum in double precision,
// and another kernel adds these. Sizes alone decide which block adds what.
#pragma once

#include <cstdint>

#include "fpdt/cuda/device.h"

namespace fpdt::cuda {

// The sum over a block of whole warps; only thread 0 gets it. `room` is 32 doubles of shared
// memory.
__device__ __forceinline__ double block_sum(double value, double* room) {
  const unsigned lane = threadIdx.x % kWarp;
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  if (lane == 0) room[threadIdx.x / kWarp] = value;
  __syncthreads();
  double sum = 0;
  for (unsigned i = 0; threadIdx.x == 0 && i < blockDim.x / kWarp; ++i) sum += room[i];
  return sum;
}

// out[0] (+)= scale[0] * (partials[0] + ... + partials[count - 1]), rounded to f32 once. `scale`
// may be nullptr: 1.
void add_partials(const double* partials, std::int64_t count, const float* scale, const View& out,
                  Stream stream);

}  // namespace fpdt::cuda
