// Joins heads again, the gradient of splitting them (heads.h).
#include "fpdt/cuda/heads.h"
#include "fpdt/cuda/kernels.h"

namespace fpdt::cuda {
namespace heads {
namespace {

template <class D, class T>
struct Join {
  Source<D> dq, dkv;
  Source<T> qkv;
  HeadNorm norm;
  Sink<T> dqkv;
  float* partials;  // [blocks, 2, size], gradients of q_weight, k_weight; null: no norm
};

// dq or dkv of a piece of a head of the fused row, turned back and summed over the ranks that hold
// it.
template <class D, class T, int N>
__device__ __forceinline__ void load_gradient(const Join<D, T>& join, const Layout& l,
                                              const Turns& turns, std::int64_t row, int token,
                                              int head, const Piece& piece, Values<N>& dy) {
  if (head < l.heads) {
    load(join.dq, l.q(row, head), piece, l.size, dy);
  } else {
    const bool is_key = head < l.heads + l.kv_heads;
    const int own = head - l.heads - (is_key ? 0 : l.kv_heads);
    const int copies = l.kv_heads >= l.ranks ? 1 : l.ranks / l.kv_heads;
    const int rank = own * copies / l.own_kv;  // the first that holds it
    const int local = own % l.own_kv + (is_key ? 0 : l.own_kv);
    load(join.dkv, l.kv(row, rank, local), piece, l.size, dy);
    for (int copy = 1; copy < copies; ++copy) {
      Values<N> more;
      load(join.dkv, l.kv(row, rank + copy, local), piece, l.size, more);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        dy.first[j] += more.first[j];
        dy.second[j] += more.second[j];
      }
    }
  }
  if (piece.turns && head < l.heads + l.kv_heads) turns.apply(l.half, token, piece.first, dy);
}

// Gradients of weights. Each thread sums the heads that it sees, in shared memory [query or
// key][round of pieces][2 N][thread]: its sums are its own, and there are no bank conflicts.
template <int N>
struct WeightSums {
  float* sums;
  int rounds;

  __device__ __forceinline__ float* own(bool is_key, int round) const {
    return sums + ((is_key ? rounds : 0) + round) * 2 * N * kThreads + threadIdx.x;
  }
  __device__ __forceinline__ void clear() const {
    for (int i = 0; i < 2 * rounds * 2 * N; ++i) own(false, 0)[i * kThreads] = 0;
  }
  __device__ __forceinline__ void add(bool is_key, int round, const Values<N>& dy,
                                      const Values<N>& n) const {
    float* to = own(is_key, round);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      to[j * kThreads] += dy.first[j] * n.first[j];
      to[(N + j) * kThreads] += dy.second[j] * n.second[j];
    }
  }
  // Adds the sums of the groups of lanes in order, into [2, size].
  __device__ __forceinline__ void write(const Layout& l, float* partials) const {
    for (int i = static_cast<int>(threadIdx.x); i < 2 * rounds * 2 * N * l.lanes; i += kThreads) {
      const int lane = i % l.lanes, slot = i / l.lanes;
      float sum = 0;
      for (int at = lane; at < kThreads; at += l.lanes) sum += sums[slot * kThreads + at];
      const int which = slot / (2 * N * rounds), round = slot / (2 * N) % rounds;
      if (round * l.lanes + lane >= l.pieces) continue;
      const Piece piece = piece_of<N>(l, round * l.lanes + lane);
      const int j = slot % (2 * N);
      const int element = j < N ? piece.first + j : piece.second + j - N;
      if (element < l.size) partials[which * l.size + element] = sum;
    }
  }
};

// Turns dy into dx in all pieces of a head, through its norm. All lanes of the warp must call it;
// lanes without work have no pieces.
template <class D, class T, int N>
__device__ __forceinline__ void store_through_norm(const Join<D, T>& join, const Layout& l,
                                                   const Turns& turns, const WeightSums<N>& sums,
                                                   std::int64_t row, int token, int head,
                                                   int lane) {
  const bool is_key = head >= l.heads;
  const Source<Any> weight = is_key ? join.norm.k_weight : join.norm.q_weight;
  const std::int64_t at = l.fused(row, head);
  Values<N> dy, x, w;
  const auto take = [&](const Piece& piece) {
    load_gradient(join, l, turns, row, token, head, piece, dy);
    load(join.qkv, at, piece, l.size, x);
    load(weight, 0, piece, l.size, w);
  };
  float squares = 0, product = 0;
  for (int i = lane; i < l.pieces; i += l.lanes) {
    take(piece_of<N>(l, i));
#pragma unroll
    for (int j = 0; j < N; ++j) {
      squares += x.first[j] * x.first[j] + x.second[j] * x.second[j];
      product += dy.first[j] * w.first[j] * x.first[j] + dy.second[j] * w.second[j] * x.second[j];
    }
  }
  const auto size = static_cast<float>(l.size);
  const float r = 1.0F / sqrtf(head_sum(squares, l.lanes) / size + join.norm.epsilon);
  const float mean = head_sum(product, l.lanes) * r / size;
  for (int i = lane; i < l.pieces; i += l.lanes) {
    const Piece piece = piece_of<N>(l, i);
    take(piece);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      x.first[j] *= r;
      x.second[j] *= r;
    }
    sums.add(is_key, i / l.lanes, dy, x);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      dy.first[j] = r * (dy.first[j] * w.first[j] - x.first[j] * mean);
      dy.second[j] = r * (dy.second[j] * w.second[j] - x.second[j] * mean);
    }
    store(join.dqkv, at, piece, l.size, dy);
  }
}

// f32 to bf16: reads 4 and writes 2 bytes per element, and 2 more with norms: bound by memory. A
// norm reads its heads a second time, from the caches.
template <class D, class T, int N>
__global__ void __launch_bounds__(kThreads)
    join_heads(Join<D, T> join, Layout l, Rotation rotation, Frequencies frequencies) {
  auto* shared = dynamic_shared<float>();
  const Turns turns = turns_in(shared, l);
  const WeightSums<N> sums{shared + 2 * kTokens * l.half, (l.pieces + l.lanes - 1) / l.lanes};
  const bool normed = join.partials != nullptr;
  if (normed) sums.clear();
  const int lane = static_cast<int>(threadIdx.x) % l.lanes;
  const int group = static_cast<int>(threadIdx.x) / l.lanes;
  const int heads = l.heads + 2 * l.kv_heads;
  for (std::int64_t row_first = std::int64_t{blockIdx.x} * kTokens; row_first < l.rows;
       row_first += std::int64_t{gridDim.x} * kTokens) {
    turns.set(rotation, frequencies, l, row_first);
    __syncthreads();
    for (int first = 0; first < kTokens * heads; first += kThreads / l.lanes) {
      const int token = (first + group) / heads, head = (first + group) % heads;
      const std::int64_t row = row_first + token;
      const bool works = token < kTokens && row < l.rows;
      const bool turns_back = head < l.heads + l.kv_heads;
      if (normed) {
        const int first_piece = works && turns_back ? lane : l.pieces;
        store_through_norm(join, l, turns, sums, row, token, head, first_piece);
        if (turns_back) continue;
      }
      for (int i = works ? lane : l.pieces; i < l.pieces; i += l.lanes) {
        const Piece piece = piece_of<N>(l, i);
        Values<N> dy;
        load_gradient(join, l, turns, row, token, head, piece, dy);
        store(join.dqkv, l.fused(row, head), piece, l.size, dy);
      }
    }
    __syncthreads();
  }
  if (normed) sums.write(l, join.partials + std::int64_t{blockIdx.x} * 2 * l.size);
}

}  // namespace
}  // namespace heads

void execute(const JoinHeads& op, const Frame& frame) {
  using namespace heads;
  const View dq = frame.view(op, op.dq), dkv = frame.view(op, op.dkv);
  const View qkv = frame.view(op, op.qkv), dqkv = frame.view(op, op.dqkv);
  const View q_weight = frame.view(op, op.q_weight), k_weight = frame.view(op, op.k_weight);
  const bool normed = present(q_weight) || present(k_weight);
  FPDT_ASSERT(present(qkv) == normed);
  with_pieces(op, {dq, dkv}, {qkv, dqkv}, {q_weight, k_weight}, [&](auto gradient, auto fused) {
    using D = typename decltype(gradient)::Type;
    using T = typename decltype(fused)::Type;
    constexpr int N = decltype(fused)::kElements;
    const Layout l = layout_of(op, N);
    FPDT_ASSERT(op.heads == 0 || dq.elements >= op.rows * op.heads * op.head_dim);
    FPDT_ASSERT(op.kv_heads == 0 ||
                dkv.elements >= op.ranks * op.rows * 2 * l.own_kv * op.head_dim);
    FPDT_ASSERT(dqkv.elements >= op.rows * (op.heads + 2 * op.kv_heads) * op.head_dim);
    // With sums, 512 blocks: about as many as an H100 runs at once, with 34 KiB of shared memory
    // each for heads of 128 dimensions.
    const unsigned blocks = grid_of(op.rows, kTokens, normed ? 512 : 1 << 30);
    std::size_t shared = turns_bytes(l);
    float* partials = nullptr;
    if (normed) {
      shared +=
          sizeof(float) * 4 * N * kThreads * static_cast<std::size_t>(div_ceil(l.pieces, l.lanes));
      partials = frame.partial<float>(std::int64_t{blocks} * 2 * l.size);
    }
    const Join<D, T> join{source<D>(dq),      source<D>(dkv), source<T>(qkv),
                          norm_of(op, frame), sink<T>(dqkv),  partials};
    launch(join_heads<D, T, N>, blocks, kThreads, shared, frame.stream, join, l,
           rotation_of(op, frame, -1), frequencies_of(op.rotary));
    if (!normed) return;
    const auto add_up = [&](const float* of, const View& sum) {
      if (present(sum)) add_column_partials(of, blocks, 2 * l.size, l.size, sum, frame.stream);
    };
    add_up(partials, frame.view(op, op.dq_weight));
    add_up(partials + l.size, frame.view(op, op.dk_weight));
  });
}

}  // namespace fpdt::cuda
