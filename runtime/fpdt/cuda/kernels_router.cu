// The router of experts: choices, the order of their pairs, their balance, and gradients.
//
// A warp serves a row, so a row's choices and sums need no barrier. Routes are sorted by counting,
// in slabs of entries: a thread is an expert, and walks the slab in ascending order. So the order
// of pairs follows from the logits alone, without atomics.
#include <cmath>
#include <limits>

#include "fpdt/cuda/kernels.h"
#include "fpdt/cuda/packs.h"
#include "fpdt/cuda/routes.h"
#include "fpdt/cuda/rows.h"

namespace fpdt::cuda {
namespace {

constexpr int kThreads = 256;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Blocks of a grid with a warp for each row.
unsigned warps_for(std::int64_t rows) { return grid_of(rows, kThreads / kWarp); }

// ---- Logits of a row ----

// Lane l of a warp has the experts l, l + 32, ... of a row. kEach: how many.
template <int kEach>
__device__ __forceinline__ void load_logits(const float* row, int experts, float (&values)[kEach]) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int expert = lane() + kWarp * i;
    values[i] = expert < experts ? row[expert] : kMinusInfinity;
  }
}

// The probability of a logit is e^(logit - most) / sum. A NaN makes all of them NaN.
struct Softmax {
  float most, sum;
  __device__ __forceinline__ float operator()(float logit) const {
    return expf(logit - most) / sum;
  }
  // log sum exp(logits)
  __device__ __forceinline__ float log_sum() const { return most + logf(sum); }
};

template <int kEach>
__device__ __forceinline__ Softmax softmax_of(const float (&values)[kEach]) {
  float most = kMinusInfinity, sum = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) most = fmaxf(most, values[i]);
  most = warp_max(most);
#pragma unroll
  for (int i = 0; i < kEach; ++i) sum += expf(values[i] - most);
  return {most, warp_sum(sum)};
}

__device__ __forceinline__ float sigmoid_of(float logit) { return 1.0F / (1.0F + expf(-logit)); }

// Calls f with the number of experts of a lane, rounded up to a number that has kernels.
template <class F>
void with_each(std::int64_t experts, F&& f) {
  if (experts <= 2 * kWarp) return f(std::integral_constant<int, 2>{});
  if (experts <= 8 * kWarp) return f(std::integral_constant<int, 8>{});
  static_assert(kExpertsMost <= 32 * kWarp);
  f(std::integral_constant<int, 32>{});
}

// ---- Choices ----

// An expert with the value that it is chosen by, later its weight.
struct Choice {
  float value = kMinusInfinity;
  int expert = static_cast<int>(kExpertsMost);  // none
};

// The larger one, or that of the first expert if they are equal. Neither is a NaN.
__device__ __forceinline__ Choice better(const Choice& a, const Choice& b) {
  return b.value > a.value || (b.value == a.value && b.expert < a.expert) ? b : a;
}

__device__ __forceinline__ Choice best_of_warp(Choice own) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    own = better(own, {__shfl_xor_sync(kAllLanes, own.value, step),
                       __shfl_xor_sync(kAllLanes, own.expert, step)});
  }
  return own;
}

// Napkin: reads 4 bytes per logit. A choice takes 4 instructions for each expert of a lane and
// about 40 to compare the lanes. With 8 of 128 experts that is 600 instructions per row: 8192 rows
// take 5 us on 132 multiprocessors, and memory 1 us. With the kernels that order pairs, an H200
// takes 48 us.
//
// Lane j holds the choices j and j + 32.
template <int kEach>
__global__ void __launch_bounds__(kThreads)
    choose_experts(const float* logits, Source<Any> bias, std::int32_t* choices, float* weights,
                   std::int64_t rows, int experts, int active, bool normalised, float scale) {
  static_assert(kActiveMost <= 2 * kWarp);
  const std::int64_t row = row_of_warp();
  if (row >= rows) return;
  float values[kEach];
  load_logits(logits + row * experts, experts, values);
  const Softmax probability = softmax_of(values);
  const bool sigmoid = bias.data != nullptr;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int expert = lane() + kWarp * i;
    if (!sigmoid || expert >= experts) continue;
    float more[1];
    bias.load<1>(expert, more);
    values[i] = sigmoid_of(values[i]) + more[0];
  }
  unsigned taken = 0;  // bit i: not to be chosen
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    values[i] = fmaxf(values[i], kMinusInfinity);  // of a NaN: the other one
    if (lane() + kWarp * i >= experts) taken |= 1U << i;
  }
  Choice low, high;
  float sum = 0;
  for (int j = 0; j < active; ++j) {
    Choice best;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if ((taken >> i & 1U) == 0) best = better(best, {values[i], lane() + kWarp * i});
    }
    best = best_of_warp(best);
    if (best.expert % kWarp == lane()) taken |= 1U << best.expert / kWarp;
    best.value =
        sigmoid ? sigmoid_of(logits[row * experts + best.expert]) : probability(best.value);
    sum += best.value;
    if (j == lane()) low = best;
    if (j == lane() + kWarp) high = best;
  }
  const float divisor = normalised ? sum : 1.0F;
  for (int j = lane(); j < active; j += kWarp) {
    const Choice& own = j < kWarp ? low : high;
    choices[row * active + j] = own.expert;
    weights[row * active + j] = scale * (own.value / divisor);
  }
}

// ---- The order of pairs ----

constexpr int kStage = 1024;               // entries that a block reads at a time
constexpr std::int64_t kSlabsMost = 1024;  // at most 4 MiB of counts

// Which entries a block sorts: `slab` of them, a multiple of kStage.
struct Slab {
  std::int64_t first, end;
  __device__ __forceinline__ Slab(std::int64_t pairs, std::int64_t slab)
      : first(blockIdx.x * slab), end(min(pairs, first + slab)) {}
};

// Calls f(entry) for the entries that chose the thread's expert, in ascending order. Every thread
// of the block must call it. f may overwrite the choice of its entry.
template <class F>
__device__ __forceinline__ void each_of_expert(const std::int32_t* choices, const Slab& slab,
                                               F&& f) {
  __shared__ std::int32_t stage[kStage];
  const auto expert = static_cast<std::int32_t>(threadIdx.x);
  for (std::int64_t at = slab.first; at < slab.end; at += kStage) {
    const int count = static_cast<int>(min(std::int64_t{kStage}, slab.end - at));
    __syncthreads();
    for (int i = expert; i < count; i += static_cast<int>(blockDim.x)) stage[i] = choices[at + i];
    __syncthreads();
#pragma unroll 8
    for (int i = 0; i < count; ++i) {
      if (stage[i] == expert) f(at + i);
    }
  }
}

// Napkin: compares each entry with each expert, both here and in place_pairs, as broadcasts from
// shared memory: 3 instructions for 32 experts. 65536 entries and 128 experts are 0.8 M
// instructions of a warp, 1 us if all of 132 multiprocessors work. But 64 slabs use only half of
// them with 4 warps each, which takes 3072 instructions in a row: about 6 us.
__global__ void count_pairs(const std::int32_t* choices, std::int64_t pairs, std::int64_t slab,
                            int experts, std::int32_t* counts) {
  std::int32_t count = 0;
  each_of_expert(choices, Slab(pairs, slab), [&](std::int64_t) { ++count; });
  const int expert = static_cast<int>(threadIdx.x);
  if (expert < experts) counts[static_cast<std::int64_t>(blockIdx.x) * experts + expert] = count;
}

// Replaces each slab's counts by those of all slabs before it, and writes the ends of the experts.
//
// Napkin: one block reads and writes 4 bytes per slab and expert, 8 slabs at a time: 64 slabs take
// 8 latencies, about 6 us.
__global__ void sum_counts(std::int32_t* counts, std::int64_t slabs, int experts,
                           std::int32_t* ends) {
  constexpr int kTogether = 8;
  __shared__ std::int32_t room[kWarp];
  const int expert = static_cast<int>(threadIdx.x);
  std::int32_t before = 0;
  for (std::int64_t first = 0; expert < experts && first < slabs; first += kTogether) {
    std::int32_t* const own = counts + first * experts + expert;
    const int count = static_cast<int>(min(std::int64_t{kTogether}, slabs - first));
    std::int32_t values[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) values[i] = i < count ? own[i * experts] : 0;
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (i < count) own[i * experts] = before;
      before += values[i];
    }
  }
  std::int32_t end = before;  // of the experts of the warp up to this one, then of all of them
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const std::int32_t other = __shfl_up_sync(kAllLanes, end, step);
    if (lane() >= step) end += other;
  }
  if (lane() == kWarp - 1) room[threadIdx.x / kWarp] = end;
  __syncthreads();
  for (unsigned warp = 0; warp < threadIdx.x / kWarp; ++warp) end += room[warp];
  if (expert < experts) ends[expert] = end;
}

// `slots` holds the choices before. A block overwrites only those that it reads itself.
__global__ void place_pairs(std::int32_t* sources, std::int32_t* slots, const std::int32_t* ends,
                            std::int64_t pairs, std::int64_t slab, int experts,
                            const std::int32_t* counts) {
  const int expert = static_cast<int>(threadIdx.x);
  std::int32_t pair = 0;
  if (expert < experts) {
    pair = counts[static_cast<std::int64_t>(blockIdx.x) * experts + expert];
    if (expert > 0) pair += ends[expert - 1];
  }
  each_of_expert(slots, Slab(pairs, slab), [&](std::int64_t entry) {
    sources[pair] = static_cast<std::int32_t>(entry);
    slots[entry] = pair++;
  });
}

// ---- The balance of experts ----

// The expert of a pair, by bisection: the first whose end lies behind it.
__device__ __forceinline__ int expert_of(const Routes& routes, std::int32_t pair) {
  int first = 0, end = routes.experts - 1;
  while (first < end) {
    const int middle = (first + end) / 2;
    if (routes.ends[middle] > pair) {
      end = middle;
    } else {
      first = middle + 1;
    }
  }
  return first;
}

constexpr int kWarps = kThreads / kWarp;
constexpr std::int64_t kLoadBlocks = 256;

// Partial sums over the rows of a block: chances [X], the squares of log sums, loads [X].
//
// Napkin: reads 4 bytes per logit; 20 instructions for each expert of a lane and 8 for each choice.
// 8192 rows of 128 experts take 3 us on 132 multiprocessors, and memory 1 us. An H200 takes 28 us,
// with the sum over blocks.
template <int kEach>
__global__ void __launch_bounds__(kThreads)
    sum_loads(const float* logits, Routes routes, const std::int32_t* labels, std::int64_t rows,
              float* partials) {
  __shared__ float room[kWarps][kEach * kWarp];
  const int warp = static_cast<int>(threadIdx.x / kWarp);
  float chances[kEach] = {}, loads[kEach] = {}, squares = 0;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kWarps;
  for (std::int64_t row = row_of_warp(); row < rows; row += step) {
    if (labels[row] < 0) continue;
    float values[kEach];
    load_logits(logits + row * routes.experts, routes.experts, values);
    const Softmax probability = softmax_of(values);
    squares += probability.log_sum() * probability.log_sum();
#pragma unroll
    for (int i = 0; i < kEach; ++i) chances[i] += probability(values[i]);
    for (int j = 0; j < routes.active; ++j) {
      const int expert = expert_of(routes, routes.slots[row * routes.active + j]);
#pragma unroll
      for (int i = 0; i < kEach; ++i) loads[i] += expert == lane() + kWarp * i ? 1.0F : 0.0F;
    }
  }
  const auto give = [&](const float(&sums)[kEach], float* to) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) room[warp][lane() + kWarp * i] = sums[i];
    __syncthreads();
    for (int expert = static_cast<int>(threadIdx.x); expert < routes.experts; expert += kThreads) {
      float sum = 0;
      for (int i = 0; i < kWarps; ++i) sum += room[i][expert];
      to[expert] = sum;
    }
    __syncthreads();
  };
  float* const own = partials + static_cast<std::int64_t>(blockIdx.x) * (2 * routes.experts + 1);
  give(chances, own);
  give(loads, own + routes.experts + 1);
  if (lane() == 0) room[warp][0] = squares;
  __syncthreads();
  if (threadIdx.x > 0) return;
  float sum = 0;
  for (int i = 0; i < kWarps; ++i) sum += room[i][0];
  own[routes.experts] = sum;
}

// Adds up the blocks in order.
__global__ void add_loads(const float* partials, std::int64_t blocks, int experts, float* chances,
                          bool add_chances, float* loads, bool add_loads) {
  const std::int64_t at = global_thread(), all = 2 * experts + 1;
  if (at >= all) return;
  float sum = 0;
  for (std::int64_t block = 0; block < blocks; ++block) sum += partials[block * all + at];
  if (at <= experts) {
    put(chances + at, sum, add_chances);
  } else {
    put(loads + at - experts - 1, sum, add_loads);
  }
}

// One warp.
__global__ void balance_of(const float* loads, const float* chances, int experts, int active,
                           float balance, float z, float* loss, bool accumulate) {
  float rows = 0;
  for (int e = lane(); e < experts; e += kWarp) rows += loads[e];
  rows = warp_sum(rows) / static_cast<float>(active);
  float sum = 0;
  for (int e = lane(); e < experts; e += kWarp) sum += loads[e] / rows * (chances[e] / rows);
  sum = warp_sum(sum);
  if (lane() == 0) {
    put(loss, rows > 0 ? balance * sum + z * (chances[experts] / rows) : 0.0F, accumulate);
  }
}

// ---- The gradient of the router ----

// Of the logit of a chosen expert: w (dw - sum of w dw). Where weights are not normalised, w is the
// probability, and that of every other expert takes part in the softmax as well. One expert alone,
// of weight 1, has no gradient, exactly. Of a sigmoid p, whose slope is p (1 - p), only the chosen
// have a gradient: (1 - p) times that of above, or p (1 - p) dw.
//
// Napkin: reads and writes 4 bytes per logit. About 250 instructions per row with 8 of 128
// experts: 8192 rows take 3 us of both. An H200 takes 8 us.
template <int kEach>
__global__ void __launch_bounds__(kThreads)
    route_gradient(const float* logits, Routes routes, const float* dweights, Sink<Any> dlogits,
                   std::int64_t rows, bool normalised, bool sigmoid, float scale,
                   const std::int32_t* labels, const float* loads, float balance, float z) {
  const std::int64_t row = row_of_warp();
  if (row >= rows) return;
  float p[kEach];
  load_logits(logits + row * routes.experts, routes.experts, p);
  const Softmax probability = softmax_of(p);
#pragma unroll
  for (int i = 0; i < kEach; ++i) p[i] = sigmoid ? sigmoid_of(p[i]) : probability(p[i]);
  // Lane j has the choices j and j + 32.
  Choice low, high;
  for (int j = lane(); j < routes.active; j += kWarp) {
    const std::int64_t entry = row * routes.active + j;
    Choice& own = j < kWarp ? low : high;
    own.value = scale * dweights[entry];
    own.expert = expert_of(routes, routes.slots[entry]);
  }
  float dw[kEach] = {};
  unsigned chosen = 0;  // bit i
  for (int j = 0; j < routes.active; ++j) {
    const Choice& own = j < kWarp ? low : high;
    const float value = __shfl_sync(kAllLanes, own.value, j % kWarp);
    const int expert = __shfl_sync(kAllLanes, own.expert, j % kWarp);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (expert != lane() + kWarp * i) continue;
      dw[i] = value;
      chosen |= 1U << i;
    }
  }
  float mass = 0, mean = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if ((chosen >> i & 1U) == 0) continue;
    mass += p[i];
  }
  mass = normalised ? warp_sum(mass) : 1.0F;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if ((chosen >> i & 1U) != 0) mean += p[i] / mass * dw[i];
  }
  mean = sigmoid && !normalised ? 0.0F : warp_sum(mean);
  // Of BalanceLoss: factor * p (share - sum of p share), of shares of the sequence's rows, and
  // square * p.
  float share[kEach] = {}, factor = 0, mean_share = 0, square = 0;
  if (loads != nullptr && labels[row] >= 0) {
    load_logits(loads, routes.experts, share);
    float sequence = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) sequence += fmaxf(share[i], 0.0F);
    sequence = warp_sum(sequence) / static_cast<float>(routes.active);
    factor = sequence > 0 ? balance / sequence : 0.0F;
    square = sequence > 0 ? 2.0F * z / sequence * probability.log_sum() : 0.0F;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      share[i] = sequence > 0 ? fmaxf(share[i], 0.0F) / sequence : 0.0F;
      mean_share += p[i] * share[i];
    }
    mean_share = warp_sum(mean_share);
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int expert = lane() + kWarp * i;
    if (expert >= routes.experts) continue;
    const bool counts = (!normalised && !sigmoid) || (chosen >> i & 1U) != 0;
    const float slope = sigmoid ? 1.0F - p[i] : 1.0F;
    const float value[1] = {(counts ? slope * p[i] / mass * (dw[i] - mean) : 0.0F) +
                            p[i] * (factor * (share[i] - mean_share) + square)};
    dlogits.store(row * routes.experts + expert, value);
  }
}

}  // namespace

void execute(const Route& op, const Frame& frame) {
  const View logits = frame.view(op, op.logits);
  const View weights = frame.view(op, op.weights);
  const View view = frame.view(op, op.routes);
  const Routes routes = routes_of(op, view);
  FPDT_ASSERT(holds(logits, op.rows * op.experts) && holds(weights, routes.pairs));
  auto* const sources = elements<std::int32_t>(view);
  auto* const slots = sources + routes.pairs;
  auto* const ends = slots + routes.pairs;
  with_each(op.experts, [&](auto each) {
    launch(choose_experts<decltype(each)::value>, warps_for(op.rows), kThreads, 0, frame.stream,
           elements<const float>(logits), source<Any>(frame.view(op, op.bias)), slots,
           elements<float>(weights), op.rows, routes.experts, routes.active, op.normalised,
           static_cast<float>(op.scale));
  });
  const std::int64_t slab = round_up(div_ceil(routes.pairs, kSlabsMost), kStage);
  const std::int64_t slabs = div_ceil(routes.pairs, slab);
  auto* const counts = frame.partial<std::int32_t>(slabs * op.experts);
  const auto threads = static_cast<unsigned>(round_up(op.experts, kWarp));
  launch(count_pairs, grid_of(slabs), threads, 0, frame.stream, slots, routes.pairs, slab,
         routes.experts, counts);
  launch(sum_counts, 1, threads, 0, frame.stream, counts, slabs, routes.experts, ends);
  launch(place_pairs, grid_of(slabs), threads, 0, frame.stream, sources, slots, ends, routes.pairs,
         slab, routes.experts, counts);
}

void execute(const RouteBackward& op, const Frame& frame) {
  const View logits = frame.view(op, op.logits);
  const View dweights = frame.view(op, op.dweights);
  const View dlogits = frame.view(op, op.dlogits);
  const View labels = frame.view(op, op.labels), loads = frame.view(op, op.loads);
  const Routes routes = routes_of(op, frame.view(op, op.routes));
  FPDT_ASSERT(holds(logits, op.rows * op.experts) && holds(dweights, routes.pairs));
  FPDT_ASSERT(!present(loads) || (holds(loads, op.experts) && labels.elements >= op.rows));
  FPDT_ASSERT(dlogits.elements >= op.rows * op.experts);
  with_each(op.experts, [&](auto each) {
    launch(route_gradient<decltype(each)::value>, warps_for(op.rows), kThreads, 0, frame.stream,
           elements<const float>(logits), routes, elements<const float>(dweights),
           sink<Any>(dlogits), op.rows, op.normalised, op.sigmoid, static_cast<float>(op.scale),
           elements<const std::int32_t>(labels), elements<const float>(loads),
           static_cast<float>(op.balance), static_cast<float>(op.z));
  });
}

void execute(const ExpertLoads& op, const Frame& frame) {
  const View logits = frame.view(op, op.logits), labels = frame.view(op, op.labels);
  const View loads = frame.view(op, op.loads), chances = frame.view(op, op.chances);
  const Routes routes = routes_of(op, frame.view(op, op.routes));
  FPDT_ASSERT(holds(logits, op.rows * op.experts) && labels.elements >= op.rows);
  FPDT_ASSERT(holds(loads, op.experts) && holds(chances, op.experts + 1));
  const std::int64_t blocks = std::min(kLoadBlocks, div_ceil(op.rows, kWarps));
  auto* const partials = frame.partial<float>(blocks * (2 * op.experts + 1));
  with_each(op.experts, [&](auto each) {
    launch(sum_loads<decltype(each)::value>, grid_of(blocks), kThreads, 0, frame.stream,
           elements<const float>(logits), routes, elements<const std::int32_t>(labels), op.rows,
           partials);
  });
  launch(add_loads, grid_of(2 * op.experts + 1, kThreads), kThreads, 0, frame.stream, partials,
         blocks, routes.experts, elements<float>(chances), accumulates(chances),
         elements<float>(loads), accumulates(loads));
}

void execute(const BalanceLoss& op, const Frame& frame) {
  const View loads = frame.view(op, op.loads), chances = frame.view(op, op.chances);
  const View loss = frame.view(op, op.loss);
  FPDT_ASSERT(holds(loads, op.experts) && holds(chances, op.experts + 1) && holds(loss, 1));
  launch(balance_of, 1, kWarp, 0, frame.stream, elements<const float>(loads),
         elements<const float>(chances), static_cast<int>(op.experts), static_cast<int>(op.active),
         static_cast<float>(op.balance), static_cast<float>(op.z), elements<float>(loss),
         accumulates(loss));
}

}  // namespace fpdt::cuda
