// Code shared by the kernels that split and join heads: the layout of heads, their pieces, and
// turns.
//
// A rotated head: pairs (i, i + rotary/2) turn by position * frequency_i. A normalised head x, with
// r = 1 / sqrt(mean(x^2) + epsilon) and n = x r: y = n w, dx = r (g - n mean(g n)) with g = dy w,
// dw = sum over tokens and heads of dy n.
//
// A block takes a few tokens. It first computes their turns, which all heads share, and then walks
// the heads. Some lanes of a warp share a head. Each lane has pieces of the head: N elements, and
// the N elements that these turn with.
#pragma once

#include "fpdt/cuda/rows.h"
#include "fpdt/runtime/rotary.h"

namespace fpdt::cuda::heads {

inline constexpr int kThreads = 256;
inline constexpr int kTokens = 4;  // tokens that a block takes at a time
inline constexpr std::int64_t kSizeMost = 2048;

// Since CUDA 12.1 the parameters of a kernel may take 32764 bytes.
struct Frequencies {
  double of_pair[kSizeMost / 2];
};

// How heads spread over ranks, in the words of the ops' comments.
struct Layout {
  std::int64_t rows;
  int heads, kv_heads, ranks, size, own, own_kv;
  int half;           // pairs that turn
  int pieces, lanes;  // of a head; lanes are a power of two

  // The first element of a head in row i of the fused [q | k | v] rows.
  __device__ __forceinline__ std::int64_t fused(std::int64_t row, int head) const {
    return (row * (heads + 2 * kv_heads) + head) * size;
  }
  // The first element of query head `head` (of all heads) in the blocks by rank.
  __device__ __forceinline__ std::int64_t q(std::int64_t row, int head) const {
    return ((head / own * rows + row) * own + head % own) * size;
  }
  // The first element of local key head `head` of rank `rank`. Its value head comes own_kv heads
  // later.
  __device__ __forceinline__ std::int64_t kv(std::int64_t row, int rank, int head) const {
    return ((rank * rows + row) * 2 * own_kv + head) * size;
  }
};

// N elements of a head from `first` on and, if `turns`, the N elements from `second` on that turn
// with them. The last element of an odd head has no second.
struct Piece {
  int first, second;
  bool turns;
};
template <int N>
__device__ __forceinline__ Piece piece_of(const Layout& l, int index) {
  const int pairs = l.half / N;
  if (index < pairs) return {index * N, l.half + index * N, true};
  const int first = 2 * (l.half + (index - pairs) * N);
  return {first, first + N, false};
}

template <int N>
struct Values {
  float first[N], second[N];
};
template <class T, int N>
__device__ __forceinline__ void load(const Source<T>& source, std::int64_t head, const Piece& piece,
                                     int size, Values<N>& to) {
  source.template load<N>(head + piece.first, to.first);
  if (piece.second < size) return source.template load<N>(head + piece.second, to.second);
#pragma unroll
  for (int i = 0; i < N; ++i) to.second[i] = 0;
}
template <class T, int N>
__device__ __forceinline__ void store(const Sink<T>& sink, std::int64_t head, const Piece& piece,
                                      int size, const Values<N>& values) {
  sink.store(head + piece.first, values.first);
  if (piece.second < size) sink.store(head + piece.second, values.second);
}

// ---- Turns ----

// Error 3e-9. Removes whole quarters of a turn in double precision, then evaluates Taylor series.
// About 18 instructions in double precision, of which an H100 runs 1.4e13 per second. The 64 pairs
// of a token take 0.1 ns, while its 24 KB (32 + 16 heads of 128) take 7 ns of memory time.
__device__ __forceinline__ void sine_cosine(double angle, double& sine, double& cosine) {
  constexpr double kQuarter = 1.5707963267948966, kQuarterLow = 6.123233995736766e-17;
  const double quarters = rint(angle * 0.6366197723675814);
  const double x = fma(-quarters, kQuarterLow, fma(-quarters, kQuarter, angle));
  const double y = x * x;
  const double s =
      x + x * y * (-1.0 / 6 + y * (1.0 / 120 + y * (-1.0 / 5040 + y * (1.0 / 362880))));
  const double c =
      1 + y * (-0.5 + y * (1.0 / 24 + y * (-1.0 / 720 + y * (1.0 / 40320 - y * (1.0 / 3628800)))));
  const auto quadrant = static_cast<int>(static_cast<std::int64_t>(quarters) & 3);
  sine = quadrant % 2 == 0 ? s : c;
  cosine = quadrant % 2 == 0 ? c : s;
  if (quadrant >= 2) sine = -sine;
  if (quadrant == 1 || quadrant == 2) cosine = -cosine;
}

struct Rotation {
  const std::int32_t* documents;  // where documents start; nullptr: one document
  std::int64_t token_first;
  double magnitude, direction;
};

// The turns of kTokens rows, in shared memory: [kTokens, half] each.
struct Turns {
  float *cosine, *sine;

  __device__ __forceinline__ void set(const Rotation& r, const Frequencies& f, const Layout& l,
                                      std::int64_t row_first) const {
    for (int i = static_cast<int>(threadIdx.x); i < kTokens * l.half; i += kThreads) {
      const std::int64_t row = row_first + i / l.half;
      if (row >= l.rows) return;
      const std::int64_t token = r.token_first + row;
      const std::int64_t start = r.documents == nullptr ? 0 : r.documents[token];
      double s, c;
      sine_cosine(static_cast<double>(token - start) * f.of_pair[i % l.half], s, c);
      cosine[i] = static_cast<float>(r.magnitude * c);
      sine[i] = static_cast<float>(r.magnitude * r.direction * s);
    }
  }
  // `pair` is the first of N pairs of token `token` of the rows.
  template <int N>
  __device__ __forceinline__ void apply(int half, int token, int pair, Values<N>& values) const {
    float c[N], s[N];
    Source<Any>{cosine, true}.load(token * half + pair, c);
    Source<Any>{sine, true}.load(token * half + pair, s);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float a = values.first[i], b = values.second[i];
      values.first[i] = a * c[i] - b * s[i];
      values.second[i] = a * s[i] + b * c[i];
    }
  }
};

__device__ __forceinline__ Turns turns_in(float* shared, const Layout& l) {
  return {shared, shared + kTokens * l.half};
}

// Sums over the lanes that share a head.
__device__ __forceinline__ float head_sum(float value, int lanes) {
  for (int step = lanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}

struct HeadNorm {
  Source<Any> q_weight, k_weight;  // without data: no norm
  float epsilon;
};

// ---- Launches ----

template <class Op>
Layout layout_of(const Op& op, int n) {
  FPDT_ASSERT(op.head_dim <= kSizeMost && op.rotary.rotary <= op.head_dim);
  FPDT_ASSERT(op.rotary.rotary >= 0 && op.rotary.rotary % 2 == 0);
  FPDT_ASSERT(op.kv_heads % op.ranks == 0 || op.ranks % op.kv_heads == 0);
  FPDT_ASSERT(std::max({op.heads, op.kv_heads, op.ranks}) < 1 << 20);
  Layout l{};
  l.rows = op.rows;
  l.heads = static_cast<int>(op.heads);
  l.kv_heads = static_cast<int>(op.kv_heads);
  l.ranks = static_cast<int>(op.ranks);
  l.size = static_cast<int>(op.head_dim);
  l.own = static_cast<int>(div_exact(op.heads, op.ranks));
  l.own_kv = static_cast<int>(kv_heads_of_rank(op.kv_heads, op.ranks));
  l.half = static_cast<int>(op.rotary.rotary / 2);
  l.pieces = l.half / n + (l.size - 2 * l.half + 2 * n - 1) / (2 * n);
  l.lanes = 1;
  while (l.lanes < kWarp && l.lanes < l.pieces) l.lanes *= 2;
  return l;
}

inline Frequencies frequencies_of(const Rotary& rotary) {
  Frequencies result{};
  for (std::int64_t i = 0; i < rotary.rotary / 2; ++i) {
    result.of_pair[i] = rotary_frequency(rotary, i);
  }
  return result;
}

template <class Op>
Rotation rotation_of(const Op& op, const Frame& frame, double direction) {
  const View documents = frame.view(op, op.documents);
  const std::int64_t first = op.token_first.at(frame.rank);
  FPDT_ASSERT(!present(documents) ||
              (documents.dtype == Dtype::i32 && documents.elements >= first + op.rows));
  return {elements<const std::int32_t>(documents), first, op.rotary.magnitude, direction};
}

template <class Op>
HeadNorm norm_of(const Op& op, const Frame& frame) {
  return {source<Any>(frame.view(op, op.q_weight)), source<Any>(frame.view(op, op.k_weight)),
          static_cast<float>(op.epsilon)};
}

inline std::size_t turns_bytes(const Layout& l) {
  return static_cast<std::size_t>(2 * kTokens * l.half) * sizeof(float);
}

// Calls f with the Instances for one type of each operand. Weights may have any type.
template <class Op, class F>
void with_pieces(const Op& op, std::initializer_list<View> some, std::initializer_list<View> others,
                 std::initializer_list<View> weights, F&& f) {
  const bool fast = aligned(some) && aligned(others) && aligned(weights);
  const auto are = [&](Dtype some_type, Dtype other_type, int n) {
    return fast && all_are(some_type, some) && all_are(other_type, others) &&
           op.rotary.rotary / 2 % n == 0 && (op.head_dim - op.rotary.rotary) % (2 * n) == 0;
  };
  if (are(Dtype::f32, Dtype::f32, 4)) return f(Instance<float, 4>{}, Instance<float, 4>{});
  if (are(Dtype::f32, Dtype::bf16, 4)) return f(Instance<float, 4>{}, Instance<bf16, 4>{});
  if (are(Dtype::bf16, Dtype::bf16, 8)) return f(Instance<bf16, 8>{}, Instance<bf16, 8>{});
  if (are(Dtype::bf16, Dtype::bf16, 4)) return f(Instance<bf16, 4>{}, Instance<bf16, 4>{});
  f(Instance<Any, 1>{}, Instance<Any, 1>{});
}

}  // namespace fpdt::cuda::heads
