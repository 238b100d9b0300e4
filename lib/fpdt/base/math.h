// Integer arithmetic by name, so that every division says how it rounds and no product overflows
// quietly.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fpdt/base/assert.h"

namespace fpdt {

// a * b. The caller has bounded its inputs, so an overflow is a bug.
inline std::int64_t mul(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  const bool overflow = __builtin_mul_overflow(a, b, &product);
  FPDT_ASSERT(!overflow);
  return product;
}

inline std::int64_t add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  const bool overflow = __builtin_add_overflow(a, b, &sum);
  FPDT_ASSERT(!overflow);
  return sum;
}

// ceil(a / b) for a >= 0, b > 0.
inline std::int64_t div_ceil(std::int64_t a, std::int64_t b) {
  FPDT_ASSERT(a >= 0 && b > 0);
  return a / b + (a % b != 0 ? 1 : 0);
}

// a / b, which must leave no remainder.
inline std::int64_t div_exact(std::int64_t a, std::int64_t b) {
  FPDT_ASSERT(b != 0 && a % b == 0);
  return a / b;
}

// Converts a count or number to a container index.
inline std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

// The least multiple of b that is at least a.
inline std::int64_t round_up(std::int64_t a, std::int64_t b) { return mul(div_ceil(a, b), b); }

}  // namespace fpdt
