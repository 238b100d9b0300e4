// Checksums equal those that xxhsum -H3 prints, in one piece and in many.
#include "fpdt/io/checksum.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace fpdt::test {
namespace {

TEST(Checksum, IsXxh3) {
  EXPECT_EQ(checksum_digits(checksum("")), "2d06800538d394c2");
  EXPECT_EQ(checksum_digits(checksum("a")), "e6c632b61e964e1f");
  EXPECT_EQ(checksum_digits(checksum("abc")), "78af5f94892f3950");
  EXPECT_EQ(checksum_digits(0xF), "000000000000000f");
}

TEST(Checksum, DoesNotDependOnThePieces) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += static_cast<char>(i * i % 251);
  for (const std::size_t piece : {1U, 7U, 256U, 1000U, 5000U}) {
    Checksum sum;
    for (std::size_t at = 0; at < text.size(); at += piece) {
      sum.add(std::as_bytes(std::span(text).subspan(at, std::min(piece, text.size() - at))));
    }
    EXPECT_EQ(sum.value(), checksum(text)) << piece;
    sum.reset();
    EXPECT_EQ(sum.value(), checksum("")) << piece;
  }
}

}  // namespace
}  // namespace fpdt::test
