// Attention tiles written out in double precision, with the errors that a kernel on tensor cores
// may make.
//
// A score s = scale * (sum of D products q k) has magnitudes that sum to m. The tensor cores add in
// f32 and may cut instead of rounding: 2 (D+2) units of scale * m. Multiplying by scale and log2 e
// takes 8 units of the largest exponent, and exp2 takes 8 more. Let e be the sum of these: every p
// errs by e relative to itself. For its second product p is rounded to bf16, one unit of bf16 of
// itself, however keys are cut into tiles. o = sum p v / sum p errs by twice e, because p is in
// both sums. Sums of n terms take 2 n units of the sum of magnitudes, and each block of keys scales
// the sums before it. ds = p (dp - delta) is rounded to bf16 in the same way and adds the error of
// dp, again 2 (D+2) units of its magnitudes, times p. A p below kLeast may be 0.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "../cpu/kernel_case.h"

namespace fpdt {

inline constexpr double kLeast = 0x1p-126;  // the smallest normal number
inline constexpr double kNothing = -std::numeric_limits<double>::infinity();

// One query of one head: the places of its elements, and the keys that it attends to.
struct Row {
  std::int64_t token, first, end;  // the keys, in rows of the tile
  std::size_t q, lse;
};

// A tile's operands as the kernel sees them, and the loops that all references share.
struct Numbers {
  template <class Op>
  Numbers(const Op& op, const KernelCase& memory)
      : heads(op.heads),
        kv_heads(op.kv_heads),
        size(op.head_dim),
        scale(op.scale),
        q(memory.values(op.q)),
        kv(memory.values(op.kv)) {
    const std::vector<double> documents =
        op.documents.present() ? memory.values(op.documents) : std::vector<double>{};
    for (std::int64_t i = 0; i < op.q_rows; ++i) {
      const std::int64_t token = op.q_first.at(0) + i;
      const auto start = documents.empty() ? 0 : static_cast<std::int64_t>(documents[index(token)]);
      const std::int64_t oldest = op.window > 0 ? std::max(start, token + 1 - op.window) : start;
      const std::int64_t first = std::max<std::int64_t>(0, oldest - op.k_first.at(0));
      const std::int64_t end = std::min(op.k_rows, token + 1 - op.k_first.at(0));
      for (std::int64_t head = 0; head < heads; ++head) {
        rows.push_back({token, first, std::max(first, end), index((i * heads + head) * size),
                        index(i * heads + head)});
      }
    }
  }
  [[nodiscard]] std::size_t k_at(const Row& row, std::int64_t u) const {
    const std::int64_t head = static_cast<std::int64_t>(row.lse) % heads;
    return index((u * 2 * kv_heads + head / (heads / kv_heads)) * size);
  }
  [[nodiscard]] std::size_t v_at(const Row& row, std::int64_t u) const {
    return k_at(row, u) + index(kv_heads * size);
  }
  // The product of two vectors of a head with its error.
  [[nodiscard]] Expected product(const double* a, const double* b) const {
    Expected sum;
    for (std::size_t d = 0; d < index(size); ++d) {
      sum.value += a[d] * b[d];
      sum.error += std::abs(a[d] * b[d]);
    }
    sum.error *= 2 * static_cast<double>(size + 2) * kUnit;
    return sum;
  }
  [[nodiscard]] Expected score(const Row& row, std::int64_t u) const {
    const Expected raw = product(&q[row.q], &kv[k_at(row, u)]);
    return {scale * raw.value, scale * raw.error};
  }

  std::int64_t heads, kv_heads, size;
  double scale;
  std::vector<double> q, kv;
  std::vector<Row> rows;
};

// The relative error of exp(score - other).
inline double error_of_power(const Expected& score, double other) {
  return score.error + 8 * kUnit * (1 + std::max(std::abs(score.value), std::abs(other)));
}

struct Forward {
  std::vector<Expected> o, lse;
};

// Forward of the tile, continuing from (o, lse) or from nothing.
inline Forward attend(const Numbers& n, const std::vector<double>& o,
                      const std::vector<double>& lse) {
  Forward result;
  for (const Row& row : n.rows) {
    const double before = lse.empty() ? kNothing : lse[row.lse];
    std::vector<Expected> scores;
    double largest = before, bound = std::isfinite(before) ? std::abs(before) : 0;
    for (std::int64_t u = row.first; u < row.end; ++u) {
      scores.push_back(n.score(row, u));
      largest = std::max(largest, scores.back().value);
      bound = std::max(bound, std::abs(scores.back().value));
    }
    double sum = before > kNothing ? std::exp(before - largest) : 0, e = 0;
    for (const Expected& score : scores) {
      sum += std::exp(score.value - largest);
      e = std::max(e, error_of_power(score, bound));
    }
    const auto count = static_cast<double>(scores.size());
    e += (count / 64 + 1) * error_of_power({}, bound);  // earlier sums are scaled down
    const double terms = 2 * (count + 64) * kUnit;
    const double whole = largest + std::log(sum);
    result.lse.push_back({sum > 0 ? whole : kNothing, sum > 0 ? e + terms + 4 * kUnit * bound : 0});
    for (std::size_t d = 0; d < index(n.size); ++d) {
      Expected out;
      if (before > kNothing) {
        out.value = std::exp(before - whole) * o[row.q + d];
        out.error = std::abs(out.value) * (2 * e + terms) + kLeast;
      }
      for (std::size_t u = 0; u < scores.size(); ++u) {
        const double p = std::exp(scores[u].value - whole);
        const double v = n.kv[n.v_at(row, row.first + static_cast<std::int64_t>(u)) + d];
        out.value += p * v;
        out.error += std::abs(v) * (p * (1.01 * kUnitBf16 + 2 * e + terms) + kLeast);
      }
      result.o.push_back(out);
    }
  }
  return result;
}

struct Backward {
  std::vector<Expected> dq, dkv;
};

// Adds `value`, whose error is `rounded`.
inline void add(Expected& to, double value, double rounded) {
  to.value += value;
  to.error += rounded;
}

inline Backward differentiate(const Numbers& n, const std::vector<double>& dout,
                              const std::vector<double>& lse, const std::vector<double>& delta) {
  Backward result{std::vector<Expected>(n.q.size()), std::vector<Expected>(n.kv.size())};
  const auto keys = static_cast<double>(n.kv.size()) / static_cast<double>(2 * n.kv_heads * n.size);
  const double terms = 2 * (static_cast<double>(n.rows.size()) + keys) * kUnit;
  for (const Row& row : n.rows) {
    if (lse[row.lse] == kNothing) continue;
    for (std::int64_t u = row.first; u < row.end; ++u) {
      const std::size_t k = n.k_at(row, u), v = n.v_at(row, u);
      const Expected score = n.score(row, u);
      const double p = std::exp(score.value - lse[row.lse]);
      const double e = error_of_power(score, lse[row.lse]) + 1.01 * kUnitBf16 + terms;
      const Expected dp = n.product(&dout[row.q], &n.kv[v]);
      const double slope = n.scale * (dp.value - delta[row.lse]);
      const double ds = p * slope;
      const double ds_error = std::abs(slope) * (p * e + kLeast) +
                              n.scale * p * (dp.error + 2 * kUnit * std::abs(delta[row.lse]));
      for (std::size_t d = 0; d < index(n.size); ++d) {
        const double g = dout[row.q + d];
        add(result.dkv[v + d], p * g, std::abs(g) * (p * e + kLeast));
        add(result.dkv[k + d], ds * n.q[row.q + d], ds_error * std::abs(n.q[row.q + d]));
        add(result.dq[row.q + d], ds * n.kv[k + d], ds_error * std::abs(n.kv[k + d]));
      }
    }
  }
  return result;
}

// Adds the earlier values of the target.
inline void accumulate(std::vector<Expected>& to, const std::vector<double>& before) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    add(to[i], before[i], 4 * kUnit * (std::abs(before[i]) + std::abs(to[i].value)));
  }
}

}  // namespace fpdt
