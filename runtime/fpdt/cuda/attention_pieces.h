// How an attention tile is cut along its keys for a library whose kernels know two masks, and whose
// plans are made for one size each.
//
// Keys before the first query are seen by every query: pieces of a power of two times 128 rows,
// largest first, so that tiles of any length share a few sizes. What is left ends at the diagonal.
#pragma once

#include <cstdint>
#include <vector>

namespace fpdt::cuda {

struct KeyPiece {
  std::int64_t first = 0;  // of the sequence
  std::int64_t rows = 0;
  bool operator==(const KeyPiece&) const = default;
};

// Of query rows [q_first, +q_rows) and key rows [k_first, +k_rows): the keys that some query may
// see, in ascending order; pieces of at most `most` rows, but for the one at the diagonal, which
// has at most q_rows. Empty when no query sees a key.
std::vector<KeyPiece> key_pieces(std::int64_t q_first, std::int64_t q_rows, std::int64_t k_first,
                                 std::int64_t k_rows, std::int64_t most);

}  // namespace fpdt::cuda
