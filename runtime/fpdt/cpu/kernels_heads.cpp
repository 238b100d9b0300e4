// Heads apart and together again, with the rotary embedding.
//
// A rotated head: pairs (i, i + rotary/2) turn by position * frequency_i. Positions reach 10^7 and
// the turns are many, so angles are formed and reduced in double precision; once per token, for all
// of its heads.
#include <cmath>

#include "fpdt/cpu/kernels_common.h"

namespace fpdt::cpu {
namespace {

constexpr std::int64_t kRotaryMax = 2 * kPiece;  // dimensions; also bounds the shared frequencies

// frequency_i = theta^(-2i/rotary), stretched for long wavelengths as in Llama 3.1 when factor
// != 1.
double* frequencies(const Rotary& rotary, const Frame& frame) {
  FPDT_ASSERT(rotary.rotary >= 0 && rotary.rotary <= kRotaryMax && rotary.rotary % 2 == 0);
  double* result = frame.shared<double>(kRotaryMax / 2);
  for (std::int64_t i = 0; i < rotary.rotary / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(rotary.rotary);
    double frequency = std::pow(rotary.theta, exponent);
    if (rotary.factor != 1) {
      constexpr double kTurn = 6.283185307179586476925;
      const double turns = static_cast<double>(rotary.original_positions) * frequency / kTurn;
      const double smooth = (turns - rotary.low_factor) / (rotary.high_factor - rotary.low_factor);
      const double share = std::clamp(smooth, 0.0, 1.0);
      frequency *= share + (1.0 - share) / rotary.factor;
    }
    result[i] = frequency;
  }
  return result;
}

// One token's turn. direction -1 turns back.
struct Turn {
  float* cosine;
  float* sine;
  std::int64_t half;

  void set(const double* frequency, std::int64_t position, double direction) const {
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) * frequency[i];
      cosine[i] = static_cast<float>(std::cos(angle));
      sine[i] = static_cast<float>(direction * std::sin(angle));
    }
  }
  void apply(float* head) const {
    float* second = head + half;
    for (std::int64_t i = 0; i < half; ++i) {
      const float a = head[i];
      const float b = second[i];
      head[i] = a * cosine[i] - b * sine[i];
      second[i] = a * sine[i] + b * cosine[i];
    }
  }
};

// How heads spread over ranks: the words of the ops' comments.
struct HeadLayout {
  std::int64_t rows, heads, kv_heads, size, ranks, own, own_kv;

  template <class Op>
  explicit HeadLayout(const Op& op)
      : rows(op.rows),
        heads(op.heads),
        kv_heads(op.kv_heads),
        size(op.head_dim),
        ranks(op.ranks),
        own(div_exact(heads, ranks)),
        own_kv(std::max<std::int64_t>(1, kv_heads / ranks)) {
    FPDT_ASSERT(std::max(kv_heads, ranks) % std::min(kv_heads, ranks) == 0);
    FPDT_ASSERT(size <= 2 * kPiece && op.rotary.rotary <= size);
  }
  // Of row i, the element where a head of the fused [q | k | v] row starts.
  [[nodiscard]] std::int64_t fused(std::int64_t row, std::int64_t head) const {
    return (row * (heads + 2 * kv_heads) + head) * size;
  }
  // Where query head `head` (of all) lies in the blocks by rank.
  [[nodiscard]] std::int64_t q(std::int64_t row, std::int64_t head) const {
    return ((head / own * rows + row) * own + head % own) * size;
  }
  // Where the local key head `head` of rank `rank` lies; value heads come own_kv later.
  [[nodiscard]] std::int64_t kv(std::int64_t row, std::int64_t rank, std::int64_t head) const {
    return ((rank * rows + row) * 2 * own_kv + head) * size;
  }
  // Which KV head that is.
  [[nodiscard]] std::int64_t kv_head(std::int64_t rank, std::int64_t head) const {
    return kv_heads >= ranks ? rank * own_kv + head : rank * kv_heads / ranks;
  }
};

// Scratch of one thread: a head, another, the turn.
struct HeadPieces {
  HeadPieces(float* scratch, std::int64_t rotary)
      : head(scratch),
        other(scratch + 2 * kPiece),
        turn{scratch + 4 * kPiece, scratch + 5 * kPiece, rotary / 2} {}
  float *head, *other;
  Turn turn;
};

float* take_head(const View& view, std::int64_t offset, std::int64_t size, float* buffer) {
  const float* values = load(view, offset, size, buffer);
  if (values != buffer) std::copy_n(values, size, buffer);
  return buffer;
}

}  // namespace

void execute(const SplitHeads& op, const Frame& frame) {
  const View qkv = frame.view(op, op.qkv);
  const View q = frame.view(op, op.q);
  const View kv = frame.view(op, op.kv);
  const HeadLayout layout(op);
  const double* frequency = frequencies(op.rotary, frame);
  const std::int64_t first = op.token_first.at(frame.rank);
  const Documents documents(frame.view(op, op.documents), first, op.rows);
  const std::int64_t width = (op.heads + 2 * op.kv_heads) * op.head_dim;
  for_each_row(frame, op.rows, width, [&](std::int64_t row, std::int32_t worker) {
    const HeadPieces pieces(frame.scratch(worker), op.rotary.rotary);
    pieces.turn.set(frequency, first + row - documents.start(first + row), 1);
    const auto move = [&](std::int64_t head, const View& to, std::int64_t offset, bool turns) {
      float* values = take_head(qkv, layout.fused(row, head), layout.size, pieces.head);
      if (turns) pieces.turn.apply(values);
      store(to, offset, layout.size, values);
    };
    for (std::int64_t head = 0; head < op.heads; ++head) move(head, q, layout.q(row, head), true);
    for (std::int64_t rank = 0; rank < op.ranks; ++rank) {
      for (std::int64_t head = 0; head < layout.own_kv; ++head) {
        const std::int64_t key = op.heads + layout.kv_head(rank, head);
        move(key, kv, layout.kv(row, rank, head), true);
        move(key + op.kv_heads, kv, layout.kv(row, rank, head + layout.own_kv), false);
      }
    }
  });
}

void execute(const JoinHeads& op, const Frame& frame) {
  const View dq = frame.view(op, op.dq);
  const View dkv = frame.view(op, op.dkv);
  const View dqkv = frame.view(op, op.dqkv);
  const HeadLayout layout(op);
  const double* frequency = frequencies(op.rotary, frame);
  const std::int64_t first = op.token_first.at(frame.rank);
  const Documents documents(frame.view(op, op.documents), first, op.rows);
  const std::int64_t copies = std::max<std::int64_t>(1, op.ranks / op.kv_heads);
  const std::int64_t width = (op.heads + 2 * op.kv_heads) * op.head_dim;
  for_each_row(frame, op.rows, width, [&](std::int64_t row, std::int32_t worker) {
    const HeadPieces pieces(frame.scratch(worker), op.rotary.rotary);
    pieces.turn.set(frequency, first + row - documents.start(first + row), -1);
    for (std::int64_t head = 0; head < op.heads; ++head) {
      float* values = take_head(dq, layout.q(row, head), layout.size, pieces.head);
      pieces.turn.apply(values);
      store(dqkv, layout.fused(row, head), layout.size, values);
    }
    for (std::int64_t head = 0; head < 2 * op.kv_heads; ++head) {
      const bool is_key = head < op.kv_heads;
      const std::int64_t kv_head = is_key ? head : head - op.kv_heads;
      const std::int64_t rank = kv_head * copies / layout.own_kv;  // the first that holds it
      const std::int64_t local = kv_head % layout.own_kv + (is_key ? 0 : layout.own_kv);
      float* sum = take_head(dkv, layout.kv(row, rank, local), layout.size, pieces.head);
      for (std::int64_t copy = 1; copy < copies; ++copy) {
        const std::int64_t offset = layout.kv(row, rank + copy, local);
        const float* values = load(dkv, offset, layout.size, pieces.other);
        for (std::int64_t i = 0; i < layout.size; ++i) sum[i] += values[i];
      }
      if (is_key) pieces.turn.apply(sum);
      store(dqkv, layout.fused(row, op.heads + head), layout.size, sum);
    }
  });
}

}  // namespace fpdt::cpu
