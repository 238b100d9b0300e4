// Pieces cover the keys that are seen, in few sizes.
#include "fpdt/schedule/key_pieces.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace fpdt {
namespace {

// Consecutive pieces cover the keys that are seen, and no others.
TEST(KeyPieces, CoverWhatIsSeen) {
  for (const std::int64_t q_first : {0, 128, 4096, 33024}) {
    for (const std::int64_t q_rows : {128, 512, 1000}) {
      for (const std::int64_t k_first : {0, 128, 4096}) {
        for (const std::int64_t k_rows : {128, 640, 40000}) {
          const std::int64_t end = std::min(k_first + k_rows, q_first + q_rows);
          std::int64_t at = k_first;
          for (const KeyPiece& piece : key_pieces(q_first, q_rows, k_first, k_rows, 4096)) {
            EXPECT_EQ(piece.first, at);
            EXPECT_GT(piece.rows, 0);
            at += piece.rows;
            EXPECT_TRUE(at > q_first || piece.rows <= 4096);
          }
          EXPECT_EQ(at, std::max(k_first, end));
        }
      }
    }
  }
}

TEST(KeyPieces, TakeFewSizes) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t q_first = 0; q_first < (1 << 21); q_first += 1 << 15) {
    for (const KeyPiece& piece : key_pieces(q_first, 1 << 15, 0, q_first + (1 << 15), 1 << 20)) {
      if (std::find(sizes.begin(), sizes.end(), piece.rows) == sizes.end()) {
        sizes.push_back(piece.rows);
      }
    }
  }
  EXPECT_LE(sizes.size(), 6U);  // 32K to 1M
}

}  // namespace
}  // namespace fpdt
