// How an attention tile with a workspace is cut along its keys. The library's kernels know only two
// masks, and their plans are made for one size each. Each piece is a pass over the results of its
// queries, so the cost model uses this too.
//
// Every query sees the keys before the first query. They are cut into pieces of a power of two
// times 128 rows, largest first, so that tiles of any length share a few sizes. The last piece ends
// at the diagonal.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace fpdt {

// The most rows of a backward piece; larger pieces are not faster.
inline constexpr std::int64_t kBackwardPieceMost = 65536;

struct KeyPiece {
  std::int64_t first = 0;  // of the sequence
  std::int64_t rows = 0;
  bool operator==(const KeyPiece&) const = default;
};

// Calls f(piece), in ascending order, for the keys in [k_first, +k_rows) that some query in
// [q_first, +q_rows) may see. Pieces have at most `most` rows; the one at the diagonal has at most
// q_rows. Makes no call when no query sees a key.
template <class F>
void each_key_piece(std::int64_t q_first, std::int64_t q_rows, std::int64_t k_first,
                    std::int64_t k_rows, std::int64_t most, F&& f) {
  constexpr std::int64_t kUnit = 128;
  const std::int64_t k_end = std::min(k_first + k_rows, q_first + q_rows);
  const std::int64_t seen_by_all = std::min(k_end, q_first);
  std::int64_t at = k_first;
  while (seen_by_all - at >= kUnit) {
    const auto units =
        static_cast<std::uint64_t>(std::min(seen_by_all - at, std::max(most, kUnit)) / kUnit);
    const std::int64_t rows = kUnit * static_cast<std::int64_t>(std::bit_floor(units));
    f(KeyPiece{at, rows});
    at += rows;
  }
  if (at < k_end) f(KeyPiece{at, k_end - at});
}

inline std::vector<KeyPiece> key_pieces(std::int64_t q_first, std::int64_t q_rows,
                                        std::int64_t k_first, std::int64_t k_rows,
                                        std::int64_t most) {
  std::vector<KeyPiece> pieces;
  each_key_piece(q_first, q_rows, k_first, k_rows, most,
                 [&](const KeyPiece& piece) { pieces.push_back(piece); });
  return pieces;
}

}  // namespace fpdt
