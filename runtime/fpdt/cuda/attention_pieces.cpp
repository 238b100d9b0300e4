// Largest powers of two first.
#include "fpdt/cuda/attention_pieces.h"

#include <algorithm>
#include <bit>

#include "fpdt/base/assert.h"

namespace fpdt::cuda {

std::vector<KeyPiece> key_pieces(std::int64_t q_first, std::int64_t q_rows, std::int64_t k_first,
                                 std::int64_t k_rows, std::int64_t most) {
  constexpr std::int64_t kUnit = 128;
  FPDT_ASSERT(most >= kUnit);
  std::vector<KeyPiece> pieces;
  const std::int64_t k_end = std::min(k_first + k_rows, q_first + q_rows);
  const std::int64_t seen_by_all = std::min(k_end, q_first);
  std::int64_t at = k_first;
  while (seen_by_all - at >= kUnit) {
    const auto units = static_cast<std::uint64_t>(std::min(seen_by_all - at, most) / kUnit);
    const std::int64_t rows = kUnit * static_cast<std::int64_t>(std::bit_floor(units));
    pieces.push_back({at, rows});
    at += rows;
  }
  if (at < k_end) pieces.push_back({at, k_end - at});
  return pieces;
}

}  // namespace fpdt::cuda
