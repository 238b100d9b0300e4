// Code shared by the kernels: the op in execution, loads and stores of elements as f32, sums in a
// fixed order, scratch memory. Only the kernels_*.cpp files include it.
//
// A kernel walks its rows in pieces of at most kPiece elements: `load` gives a piece as f32 (in
// place, or converted into a buffer), `store` writes or adds it, as the view's access says. Sums
// run in kLanes parallel lanes that are added at the end, so that they vectorise and yet do not
// depend on addresses.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

#include "fpdt/base/math.h"
#include "fpdt/cpu/kernels.h"
#include "fpdt/runtime/view_finder.h"

namespace fpdt::cpu {

inline constexpr std::int64_t kPiece = 1024;            // elements of one load or store
inline constexpr std::int64_t kTaskElements = 32768;    // per task of a memory-bound op
inline constexpr std::int64_t kThreadFloats = 1 << 19;  // scratch of one thread: 2 MiB
inline constexpr std::int64_t kSharedBytes = 1 << 16;   // scratch shared by the tasks of an op
inline constexpr std::int64_t kLanes = 16;
inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// One op in execution.
struct Frame {
  Pool& pool;
  std::span<const View> views;
  std::int64_t rank;
  float* thread_scratch;      // [pool.size()][kThreadFloats]
  std::byte* shared_scratch;  // [kSharedBytes]

  // The view of a field of `op`; its data is nullptr if the operand is absent.
  template <class Body>
  [[nodiscard]] View view(const Body& op, const Operand& field) const {
    return find_view(op, views, field);
  }
  template <class Body>
  [[nodiscard]] View view(const Body& op, const Target& field) const {
    return view(op, field.operand);
  }
  [[nodiscard]] float* scratch(std::int32_t worker) const {
    return thread_scratch + worker * kThreadFloats;
  }
  template <class T>
  [[nodiscard]] T* shared(std::int64_t count) const {
    FPDT_ASSERT(count * static_cast<std::int64_t>(sizeof(T)) <= kSharedBytes);
    return reinterpret_cast<T*>(shared_scratch);
  }
};

inline bool present(const View& view) { return view.data != nullptr; }

// The same view, but adding: for kernels that visit a target several times.
inline View accumulating(View view) {
  view.access = Access::accumulate;
  return view;
}

// The [count] elements at `offset` of an f32 or bf16 view as f32: in place, or in `buffer`.
const float* load(const View& view, std::int64_t offset, std::int64_t count, float* buffer);

// Writes or adds [count] values at `offset`, as view.access says.
void store(const View& view, std::int64_t offset, std::int64_t count, const float* values);

// Zeroes a view that is to be written, before accumulating stores add to it.
void clear_written(const Frame& frame, const View& view, std::int64_t count);

inline float load_scalar(const View& view, std::int64_t offset) {
  float buffer = 0;
  return *load(view, offset, 1, &buffer);
}

// Integers: tokens, labels, document starts.
const std::int32_t* integers(const View& view, std::int64_t first, std::int64_t count);

// The start of each token's document; always 0 if the view is absent.
class Documents {
 public:
  Documents(const View& view, std::int64_t first, std::int64_t count)
      : starts_(present(view) ? integers(view, 0, first + count) : nullptr) {}
  [[nodiscard]] std::int64_t start(std::int64_t token) const {
    return starts_ == nullptr ? 0 : starts_[token];
  }

 private:
  const std::int32_t* starts_;
};

// Calls piece(offset, count, worker) for the pieces of [0, elements), distributed over tasks.
template <class Piece>
void for_each_piece(const Frame& frame, std::int64_t elements, Piece&& piece) {
  frame.pool.for_each(div_ceil(elements, kTaskElements),
                      [&](std::int64_t task, std::int32_t worker) {
                        const std::int64_t end = std::min(elements, (task + 1) * kTaskElements);
                        for (std::int64_t at = task * kTaskElements; at < end; at += kPiece) {
                          piece(at, std::min(kPiece, end - at), worker);
                        }
                      });
}

struct Range {
  std::int64_t first = 0;
  std::int64_t end = 0;
  [[nodiscard]] std::int64_t count() const { return end - first; }
  [[nodiscard]] bool empty() const { return first >= end; }
  [[nodiscard]] bool contains(std::int64_t i) const { return first <= i && i < end; }
};

// Calls row(i, worker) over rows, in tasks of about kTaskElements elements.
template <class Row>
void for_each_row(const Frame& frame, const Range& rows, std::int64_t width, Row&& row) {
  const std::int64_t step =
      std::max<std::int64_t>(1, kTaskElements / std::max<std::int64_t>(1, width));
  frame.pool.for_each(div_ceil(rows.count(), step), [&](std::int64_t task, std::int32_t worker) {
    const std::int64_t first = rows.first + task * step, end = std::min(rows.end, first + step);
    for (std::int64_t i = first; i < end; ++i) row(i, worker);
  });
}
template <class Row>
void for_each_row(const Frame& frame, std::int64_t rows, std::int64_t width, Row&& row) {
  for_each_row(frame, Range{0, rows}, width, std::forward<Row>(row));
}

// Calls columns(first, count, worker) for blocks of kColumns columns of [0, width), for sums down
// the rows.
inline constexpr std::int64_t kColumns = 128;
template <class Columns>
void for_each_column_block(const Frame& frame, std::int64_t width, Columns&& columns) {
  frame.pool.for_each(div_ceil(width, kColumns), [&](std::int64_t task, std::int32_t worker) {
    const std::int64_t first = task * kColumns;
    columns(first, std::min(kColumns, width - first), worker);
  });
}

// Calls piece(offset in the row, count) for the pieces of a row.
template <class Piece>
void for_each_in_row(std::int64_t width, Piece&& piece) {
  for (std::int64_t at = 0; at < width; at += kPiece) piece(at, std::min(kPiece, width - at));
}

// term(0) + ... + term(n-1), summed in parallel lanes.
template <class Term>
float lane_sum(std::int64_t n, Term&& term) {
  std::array<float, kLanes> lanes{};
  const std::int64_t whole = n - n % kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (std::int64_t j = 0; j < kLanes; ++j) lanes[static_cast<std::size_t>(j)] += term(i + j);
  }
  float rest = 0;
  for (std::int64_t i = whole; i < n; ++i) rest += term(i);
  for (const float lane : lanes) rest += lane;
  return rest;
}

// max(least, values...).
inline float lane_maximum(const float* values, std::int64_t n, float least) {
  std::array<float, kLanes> lanes{};
  lanes.fill(least);
  const std::int64_t whole = n - n % kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (std::int64_t j = 0; j < kLanes; ++j) {
      float& lane = lanes[static_cast<std::size_t>(j)];
      lane = values[i + j] > lane ? values[i + j] : lane;
    }
  }
  for (std::int64_t i = whole; i < n; ++i) least = std::max(least, values[i]);
  for (const float lane : lanes) least = std::max(least, lane);
  return least;
}

// e^x to 2 units in the last place, in a form that compilers vectorise (Cephes expf): x = n ln 2 +
// r, a polynomial in r, n added to the exponent. Exactly 0 below -87.3; saturates above 88.37; NaN
// stays NaN.
inline float exponential(float x) {
  constexpr float kRound =
      12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  const float bounded = x > 88.37F ? 88.37F : x;
  const float shifted = bounded * 1.44269504F + kRound;
  const float n = shifted - kRound;
  const float r = (bounded - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  const std::uint32_t power = (std::bit_cast<std::uint32_t>(shifted) << 23) + 0x3F800000U;
  return x < -87.3F ? 0.0F : p * std::bit_cast<float>(power);
}

// cap * tanh(x / cap), and its derivative: with e = exp(2 x / cap), cap (1 - 2 / (e + 1)) and
// 4 e / (e + 1)^2, which keeps its digits where tanh is near 1.
inline float soft_capped(float x, float cap) {
  return cap - 2 * cap / (exponential(2 / cap * x) + 1);
}
inline float slope_of_cap(float x, float cap) {
  const float e = exponential(2 / cap * x);
  const float part = 1 / (e + 1);
  return 4 * (e * part) * part;
}

// The kernels, one per op.
void execute(const Matmul& op, const Frame& frame);
void execute(const ColumnSum& op, const Frame& frame);
void execute(const Norm& op, const Frame& frame);
void execute(const NormBackward& op, const Frame& frame);
void execute(const NormColumns& op, const Frame& frame);
void execute(const NormColumnsBackward& op, const Frame& frame);
void execute(const SplitHeads& op, const Frame& frame);
void execute(const JoinHeads& op, const Frame& frame);
void execute(const Permute& op, const Frame& frame);
void execute(const Add& op, const Frame& frame);
void execute(const AttentionForward& op, const Frame& frame);
void execute(const AttentionDelta& op, const Frame& frame);
void execute(const AttentionBackward& op, const Frame& frame);
void execute(const AttentionSink& op, const Frame& frame);
void execute(const AttentionSinkGradient& op, const Frame& frame);
void execute(const Activation& op, const Frame& frame);
void execute(const ActivationBackward& op, const Frame& frame);
void execute(const Embedding& op, const Frame& frame);
void execute(const EmbeddingBackward& op, const Frame& frame);
void execute(const LossStatistics& op, const Frame& frame);
void execute(const LossSum& op, const Frame& frame);
void execute(const LossGradient& op, const Frame& frame);
void execute(const Fill& op, const Frame& frame);
void execute(const Copy& op, const Frame& frame);
void execute(const SquaredNorm& op, const Frame& frame);
void execute(const AdamW& op, const Frame& frame);
void execute(const Route& op, const Frame& frame);
void execute(const RouteBackward& op, const Frame& frame);
void execute(const ExpertLoads& op, const Frame& frame);
void execute(const BalanceLoss& op, const Frame& frame);
void execute(const Dispatch& op, const Frame& frame);
void execute(const Combine& op, const Frame& frame);
void execute(const CombineBackward& op, const Frame& frame);
void execute(const GroupedMatmul& op, const Frame& frame);
void execute(const GroupedGradient& op, const Frame& frame);
void execute(const GroupedSum& op, const Frame& frame);

}  // namespace fpdt::cpu
