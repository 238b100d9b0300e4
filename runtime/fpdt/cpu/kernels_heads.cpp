// Splits and joins heads, with the norm of query and key heads and the rotary embedding.
//
// A rotated head: pairs (i, i + rotary/2) turn by position * frequency_i. Positions reach 10^7 and
// heads turn many times, so angles are computed and reduced in double precision, once per token for
// all of its heads. A normalised head x, with r = 1 / sqrt(mean(x^2) + epsilon) and n = x r: y = n
// w, dx = r (g - n mean(g n)) with g = dy w, dw = sum over tokens and heads of dy n.
#include <cmath>

#include "fpdt/cpu/kernels_common.h"
#include "fpdt/runtime/rotary.h"

namespace fpdt::cpu {
namespace {

constexpr std::int64_t kRotaryMax = 2 * kPiece;  // dimensions; also bounds the shared frequencies

double* frequencies(const Rotary& rotary, const Frame& frame) {
  FPDT_ASSERT(rotary.rotary >= 0 && rotary.rotary <= kRotaryMax && rotary.rotary % 2 == 0);
  double* result = frame.shared<double>(kRotaryMax / 2);
  for (std::int64_t i = 0; i < rotary.rotary / 2; ++i) result[i] = rotary_frequency(rotary, i);
  return result;
}

// The turn of one token. direction -1 turns back.
struct Turn {
  float* cosine;
  float* sine;
  std::int64_t half;
  double magnitude;

  void set(const double* frequency, std::int64_t position, double direction) const {
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) * frequency[i];
      cosine[i] = static_cast<float>(magnitude * std::cos(angle));
      sine[i] = static_cast<float>(magnitude * direction * std::sin(angle));
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

// How heads spread over ranks, in the words of the ops' comments.
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
        own_kv(kv_heads_of_rank(kv_heads, ranks)) {
    FPDT_ASSERT(kv_heads % ranks == 0 || ranks % kv_heads == 0);
    FPDT_ASSERT(size <= 2 * kPiece && op.rotary.rotary <= size);
  }
  // The first element of a head in row i of the fused [q | k | v] rows.
  [[nodiscard]] std::int64_t fused(std::int64_t row, std::int64_t head) const {
    return (row * (heads + 2 * kv_heads) + head) * size;
  }
  // The first element of query head `head` (of all heads) in the blocks by rank.
  [[nodiscard]] std::int64_t q(std::int64_t row, std::int64_t head) const {
    return ((head / own * rows + row) * own + head % own) * size;
  }
  // The first element of local key head `head` of rank `rank`. Its value head comes own_kv heads
  // later.
  [[nodiscard]] std::int64_t kv(std::int64_t row, std::int64_t rank, std::int64_t head) const {
    return ((rank * rows + row) * 2 * own_kv + head) * size;
  }
  // The KV head that local head `head` of rank `rank` holds.
  [[nodiscard]] std::int64_t kv_head(std::int64_t rank, std::int64_t head) const {
    return kv_heads >= ranks ? rank * own_kv + head : rank * kv_heads / ranks;
  }
};

// The norm of query and key heads. Without weights there is none.
struct HeadNorm {
  View q_weight, k_weight;
  std::int64_t size;
  double epsilon;

  [[nodiscard]] bool present() const { return cpu::present(q_weight) || cpu::present(k_weight); }
  // 1 / sqrt(mean(x^2) + epsilon)
  [[nodiscard]] float rate(const float* x) const {
    const float squares = lane_sum(size, [x](std::int64_t i) { return x[i] * x[i]; });
    const double mean = static_cast<double>(squares) / static_cast<double>(size);
    return static_cast<float>(1.0 / std::sqrt(mean + epsilon));
  }
  // Turns x into y.
  void forward(float* x, const float* weight) const {
    const float r = rate(x);
    for (std::int64_t i = 0; i < size; ++i) x[i] = x[i] * r * weight[i];
  }
  // Turns dy into dx, and adds dy n to dweight.
  void backward(const float* x, const float* weight, float* dy, float* dweight) const {
    const float r = rate(x);
    const float sum = lane_sum(size, [=](std::int64_t i) { return dy[i] * weight[i] * x[i]; });
    const float mean = sum * r / static_cast<float>(size);
    for (std::int64_t i = 0; i < size; ++i) {
      const float n = x[i] * r;
      dweight[i] += dy[i] * n;
      dy[i] = r * (dy[i] * weight[i] - n * mean);
    }
  }
};

// Scratch of one thread: two heads, the weights of the norm, the turn.
struct HeadPieces {
  HeadPieces(float* scratch, const Rotary& rotary)
      : head(scratch),
        other(scratch + 2 * kPiece),
        q_weight(scratch + 4 * kPiece),
        k_weight(scratch + 6 * kPiece),
        turn{scratch + 8 * kPiece, scratch + 9 * kPiece, rotary.rotary / 2, rotary.magnitude} {}
  float *head, *other, *q_weight, *k_weight;
  Turn turn;
};

float* take_head(const View& view, std::int64_t offset, std::int64_t size, float* buffer) {
  const float* values = load(view, offset, size, buffer);
  if (values != buffer) std::copy_n(values, size, buffer);
  return buffer;
}

// The most parts into which rows are cut for weight gradients. The sums of the parts are added in
// order, so the result does not depend on the number of threads.
constexpr std::int64_t kPartsMost = 32;

// dq_weight and dk_weight of each part, in the scratch that tasks share, after the frequencies.
struct WeightSums {
  WeightSums(double* frequency, std::int64_t head_size)
      : size(head_size),
        parts(std::min(kPartsMost, kRoom / (2 * head_size))),
        sums(reinterpret_cast<float*>(frequency + kRotaryMax / 2)) {
    std::fill_n(sums, 2 * parts * size, 0.0F);
  }
  [[nodiscard]] float* q(std::int64_t part) const { return sums + 2 * part * size; }
  [[nodiscard]] float* k(std::int64_t part) const { return q(part) + size; }
  void add_to(const View& dq_weight, const View& dk_weight) const {
    for (std::int64_t part = 1; part < parts; ++part) {
      for (std::int64_t i = 0; i < 2 * size; ++i) sums[i] += q(part)[i];
    }
    if (present(dq_weight)) store(dq_weight, 0, size, q(0));
    if (present(dk_weight)) store(dk_weight, 0, size, k(0));
  }

  static constexpr std::int64_t kRoom = (kSharedBytes - 8 * kRotaryMax / 2) / 4;  // floats
  std::int64_t size, parts;
  float* sums;
};

// The state that all rows of JoinHeads share.
struct Join {
  const JoinHeads& op;
  HeadLayout layout;
  HeadNorm norm;
  View dq, dkv, qkv, dqkv;
  const double* frequency;
  Documents documents;
  std::int64_t token_first;

  void row(std::int64_t i, const HeadPieces& pieces, float* dq_weight, float* dk_weight) const;

 private:
  // dkv of one key or value head, summed over the ranks that hold it.
  [[nodiscard]] float* kv_head(std::int64_t i, std::int64_t head, const HeadPieces& pieces) const;
};

float* Join::kv_head(std::int64_t i, std::int64_t head, const HeadPieces& pieces) const {
  const std::int64_t copies = std::max<std::int64_t>(1, op.ranks / op.kv_heads);
  const bool is_key = head < op.kv_heads;
  const std::int64_t own = is_key ? head : head - op.kv_heads;
  const std::int64_t rank = own * copies / layout.own_kv;  // the first rank that holds it
  const std::int64_t local = own % layout.own_kv + (is_key ? 0 : layout.own_kv);
  float* sum = take_head(dkv, layout.kv(i, rank, local), layout.size, pieces.head);
  for (std::int64_t copy = 1; copy < copies; ++copy) {
    const std::int64_t offset = layout.kv(i, rank + copy, local);
    const float* values = load(dkv, offset, layout.size, pieces.other);
    for (std::int64_t j = 0; j < layout.size; ++j) sum[j] += values[j];
  }
  return sum;
}

void Join::row(std::int64_t i, const HeadPieces& pieces, float* dq_weight, float* dk_weight) const {
  const std::int64_t token = token_first + i;
  pieces.turn.set(frequency, token - documents.start(token), -1);
  const std::int64_t size = layout.size;
  const auto taken = [size](const View& weight, float* buffer) {
    return present(weight) ? load(weight, 0, size, buffer) : nullptr;
  };
  const float* q_weight = taken(norm.q_weight, pieces.q_weight);
  const float* k_weight = taken(norm.k_weight, pieces.k_weight);
  const auto turned_back = [&](float* dy, std::int64_t at, const float* weight, float* dweight) {
    pieces.turn.apply(dy);
    if (norm.present()) norm.backward(load(qkv, at, size, pieces.other), weight, dy, dweight);
  };
  for (std::int64_t head = 0; head < op.heads; ++head) {
    const std::int64_t at = layout.fused(i, head);
    float* values = take_head(dq, layout.q(i, head), size, pieces.head);
    turned_back(values, at, q_weight, dq_weight);
    store(dqkv, at, size, values);
  }
  for (std::int64_t head = 0; head < 2 * op.kv_heads; ++head) {
    const std::int64_t at = layout.fused(i, op.heads + head);
    float* sum = kv_head(i, head, pieces);
    if (head < op.kv_heads) turned_back(sum, at, k_weight, dk_weight);
    store(dqkv, at, size, sum);
  }
}

}  // namespace

void execute(const SplitHeads& op, const Frame& frame) {
  const View qkv = frame.view(op, op.qkv);
  const View q = frame.view(op, op.q);
  const View kv = frame.view(op, op.kv);
  const HeadLayout layout(op);
  const HeadNorm norm{frame.view(op, op.q_weight), frame.view(op, op.k_weight), op.head_dim,
                      op.epsilon};
  const double* frequency = frequencies(op.rotary, frame);
  const std::int64_t first = op.token_first.at(frame.rank);
  const Documents documents(frame.view(op, op.documents), first, op.rows);
  const std::int64_t width = (op.heads + 2 * op.kv_heads) * op.head_dim;
  for_each_row(frame, op.rows, width, [&](std::int64_t row, std::int32_t worker) {
    const HeadPieces pieces(frame.scratch(worker), op.rotary);
    pieces.turn.set(frequency, first + row - documents.start(first + row), 1);
    // Heads with a weight are normalised and turned.
    const auto move = [&](std::int64_t head, const View& to, std::int64_t offset, bool turns,
                          const View& weight) {
      float* values = take_head(qkv, layout.fused(row, head), layout.size, pieces.head);
      if (present(weight)) norm.forward(values, load(weight, 0, layout.size, pieces.q_weight));
      if (turns) pieces.turn.apply(values);
      store(to, offset, layout.size, values);
    };
    for (std::int64_t head = 0; head < op.heads; ++head) {
      move(head, q, layout.q(row, head), true, norm.q_weight);
    }
    for (std::int64_t rank = 0; rank < op.ranks; ++rank) {
      for (std::int64_t head = 0; head < layout.own_kv; ++head) {
        const std::int64_t key = op.heads + layout.kv_head(rank, head);
        move(key, kv, layout.kv(row, rank, head), true, norm.k_weight);
        move(key + op.kv_heads, kv, layout.kv(row, rank, head + layout.own_kv), false, {});
      }
    }
  });
}

void execute(const JoinHeads& op, const Frame& frame) {
  double* frequency = frequencies(op.rotary, frame);
  const std::int64_t first = op.token_first.at(frame.rank);
  const Join join{
      op,
      HeadLayout(op),
      {frame.view(op, op.q_weight), frame.view(op, op.k_weight), op.head_dim, op.epsilon},
      frame.view(op, op.dq),
      frame.view(op, op.dkv),
      frame.view(op, op.qkv),
      frame.view(op, op.dqkv),
      frequency,
      Documents(frame.view(op, op.documents), first, op.rows),
      first};
  if (!join.norm.present()) {
    const std::int64_t width = (op.heads + 2 * op.kv_heads) * op.head_dim;
    return for_each_row(frame, op.rows, width, [&](std::int64_t row, std::int32_t worker) {
      join.row(row, HeadPieces(frame.scratch(worker), op.rotary), nullptr, nullptr);
    });
  }
  const WeightSums sums(frequency, op.head_dim);
  frame.pool.for_each(sums.parts, [&](std::int64_t part, std::int32_t worker) {
    const std::int64_t end = (part + 1) * op.rows / sums.parts;
    for (std::int64_t row = part * op.rows / sums.parts; row < end; ++row) {
      join.row(row, HeadPieces(frame.scratch(worker), op.rotary), sums.q(part), sums.k(part));
    }
  });
  sums.add_to(frame.view(op, op.dq_weight), frame.view(op, op.dk_weight));
}

}  // namespace fpdt::cpu
