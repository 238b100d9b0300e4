// Splits the fused projection into heads, ready for the all-to-all (heads.h).
#include "fpdt/cuda/heads.h"
#include "fpdt/cuda/kernels.h"

namespace fpdt::cuda {
namespace heads {
namespace {

// One head's move: where it is read and written.
template <class T>
struct Move {
  int head;  // of the fused row
  Sink<T> to;
  std::int64_t offset;
  bool turns;
};

// The moves of a row: query heads, key heads with their copies, value heads with theirs.
template <class T>
__device__ __forceinline__ Move<T> move_of(const Layout& l, const Sink<T>& q, const Sink<T>& kv,
                                           std::int64_t row, int index) {
  if (index < l.heads) return {index, q, l.q(row, index), true};
  const int keys = l.own_kv * l.ranks;
  const bool is_key = index < l.heads + keys;
  const int key = index - l.heads - (is_key ? 0 : keys);
  const int rank = key / l.own_kv, local = key % l.own_kv;
  const int head = l.kv_heads >= l.ranks ? key : rank / (l.ranks / l.kv_heads);
  if (is_key) return {l.heads + head, kv, l.kv(row, rank, local), true};
  return {l.heads + l.kv_heads + head, kv, l.kv(row, rank, local + l.own_kv), false};
}

// bf16: reads 2 and writes 2 bytes per element; a copy reads from L1 and writes 2. Bound by memory.
// A norm reads its heads a second time, from the caches.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    split_heads(Source<T> qkv, HeadNorm norm, Sink<T> q, Sink<T> kv, Layout l, Rotation rotation,
                Frequencies frequencies) {
  const Turns turns = turns_in(dynamic_shared<float>(), l);
  const int lane = static_cast<int>(threadIdx.x) % l.lanes;
  const int group = static_cast<int>(threadIdx.x) / l.lanes;
  const int moves = l.heads + 2 * l.own_kv * l.ranks;
  for (std::int64_t row_first = std::int64_t{blockIdx.x} * kTokens; row_first < l.rows;
       row_first += std::int64_t{gridDim.x} * kTokens) {
    turns.set(rotation, frequencies, l, row_first);
    __syncthreads();
    for (int first = 0; first < kTokens * moves; first += kThreads / l.lanes) {
      const int token = (first + group) / moves;
      const std::int64_t row = row_first + token;
      const bool works = token < kTokens && row < l.rows;
      const Move<T> move = move_of(l, q, kv, row, (first + group) % moves);
      const std::int64_t from = l.fused(row, move.head);
      const Source<Any> weight = move.head < l.heads ? norm.q_weight : norm.k_weight;
      const bool normed = weight.data != nullptr && move.turns;
      float rate = 1;
      if (weight.data != nullptr) {
        float squares = 0;
        for (int i = works && normed ? lane : l.pieces; i < l.pieces; i += l.lanes) {
          Values<N> x;
          load(qkv, from, piece_of<N>(l, i), l.size, x);
#pragma unroll
          for (int j = 0; j < N; ++j)
            squares += x.first[j] * x.first[j] + x.second[j] * x.second[j];
        }
        squares = head_sum(squares, l.lanes);
        rate = 1.0F / sqrtf(squares / static_cast<float>(l.size) + norm.epsilon);
      }
      for (int i = works ? lane : l.pieces; i < l.pieces; i += l.lanes) {
        const Piece piece = piece_of<N>(l, i);
        Values<N> x;
        load(qkv, from, piece, l.size, x);
        if (normed) {
          Values<N> w;
          load(weight, 0, piece, l.size, w);
#pragma unroll
          for (int j = 0; j < N; ++j) {
            x.first[j] *= rate * w.first[j];
            x.second[j] *= rate * w.second[j];
          }
        }
        if (move.turns && piece.turns) turns.apply(l.half, token, piece.first, x);
        store(move.to, move.offset, piece, l.size, x);
      }
    }
    __syncthreads();
  }
}

}  // namespace
}  // namespace heads

void execute(const SplitHeads& op, const Frame& frame) {
  using namespace heads;
  const View qkv = frame.view(op, op.qkv), q = frame.view(op, op.q), kv = frame.view(op, op.kv);
  const View q_weight = frame.view(op, op.q_weight), k_weight = frame.view(op, op.k_weight);
  with_pieces(op, {qkv, q, kv}, {qkv, q, kv}, {q_weight, k_weight}, [&](auto, auto instance) {
    using T = typename decltype(instance)::Type;
    constexpr int N = decltype(instance)::kElements;
    const Layout l = layout_of(op, N);
    FPDT_ASSERT(qkv.elements >= op.rows * (op.heads + 2 * op.kv_heads) * op.head_dim);
    FPDT_ASSERT(op.heads == 0 || q.elements >= op.rows * op.heads * op.head_dim);
    FPDT_ASSERT(op.kv_heads == 0 || kv.elements >= op.ranks * op.rows * 2 * l.own_kv * op.head_dim);
    launch(split_heads<T, N>, grid_of(op.rows, kTokens), kThreads, turns_bytes(l), frame.stream,
           source<T>(qkv), norm_of(op, frame), sink<T>(q), sink<T>(kv), l,
           rotation_of(op, frame, 1), frequencies_of(op.rotary));
  });
}

}  // namespace fpdt::cuda
