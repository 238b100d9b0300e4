// Operands: which value an op touches, and how.
//
// Versions are written two ways. `x[+2]` is relative to a base that advances at each call of the
// block (by the block's declared `advance` of x); `x[4*layer+1]` is absolute, affine in the call's
// arguments. The suffix ` rows 8:16` selects rows 8 to 15 of the slot; ` +=` on a target means
// accumulate.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <string>

#include "fpdt/base/words.h"

namespace fpdt {

using BufferIndex = std::int32_t;

// What integers stand for: words of the vocabulary, the words that follow them, the positions at
// which documents begin, or the choices of a router, which alone are no input.
enum class Holds : std::uint8_t { tokens, labels, documents, routes };
constexpr auto words_of(Holds) { return word_list("tokens", "labels", "documents", "routes"); }

struct Version {
  bool relative = true;
  std::int64_t offset = 0;
  std::int64_t layer = 0;  // coefficients of the call's arguments, absolute versions only
  std::int64_t micro_batch = 0;
  std::int64_t segment = 0;
  std::int64_t place = 0;

  bool operator==(const Version&) const = default;
  static Version plus(std::int64_t n) { return {.relative = true, .offset = n}; }
  static Version at(std::int64_t n, std::int64_t layer = 0, std::int64_t micro_batch = 0,
                    std::int64_t segment = 0, std::int64_t place = 0) {
    return {false, n, layer, micro_batch, segment, place};
  }
};

// An operand that is read. rows < 0 selects the whole slot.
struct Operand {
  BufferIndex buffer = -1;
  Version version;
  std::int64_t row_first = 0;
  std::int64_t rows = -1;

  bool operator==(const Operand&) const = default;
  [[nodiscard]] bool present() const { return buffer >= 0; }
};

// How an op uses an operand: it reads it, writes every element, adds to it, or uses it as scratch.
enum class Access : std::uint8_t { read, write, accumulate, scratch };

struct Target {
  Operand operand;
  bool accumulate = false;

  bool operator==(const Target&) const = default;
  [[nodiscard]] bool present() const { return operand.present(); }
};

// b * (((r + s) div m) mod n) of the rank r.
struct RankTerm {
  std::int64_t b = 0;
  std::int64_t s = 0;
  std::int64_t m = 1;
  std::int64_t n = 1;

  auto operator<=>(const RankTerm&) const = default;
  [[nodiscard]] std::int64_t at(std::int64_t rank) const { return b * (((rank + s) / m) % n); }
};

// A constant plus two terms. Used for positions, heads, groups and shards, never for memory.
struct RankExpression {
  std::int64_t a = 0;
  RankTerm first{};
  RankTerm second{};

  auto operator<=>(const RankExpression&) const = default;
  [[nodiscard]] std::int64_t at(std::int64_t rank) const {
    return a + first.at(rank) + second.at(rank);
  }
  // A constant.
  RankExpression& operator=(std::int64_t value) { return *this = RankExpression{.a = value}; }
};

// Whether a term is 0 on every rank, and whether an expression is equal on every rank.
inline bool is_constant(const RankTerm& term) { return term.b == 0 || term.n == 1; }
inline bool is_constant(const RankExpression& e) {
  return is_constant(e.first) && is_constant(e.second);
}

// The least and greatest values of an expression over ranks 0 to ranks - 1. Takes time
// proportional to the ranks for an expression of two terms, which the verifier bounds (S103).
struct RankBounds {
  std::int64_t least = 0;
  std::int64_t greatest = 0;
};
RankBounds bounds_over(const RankExpression& e, std::int64_t ranks);

}  // namespace fpdt
