// A compressed text is what gunzip reads, and is smaller.
#include "fpdt/io/gzip.h"

#include <zlib.h>

#include <gtest/gtest.h>

namespace fpdt::test {
namespace {

// The text of a gzip stream; "" when it is damaged.
std::string gunzip(const std::string& packed, std::size_t most) {
  std::string text(most, '\0');
  std::string input = packed;
  z_stream stream{};
  EXPECT_EQ(inflateInit2(&stream, MAX_WBITS + 16), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(input.data());
  stream.avail_in = static_cast<uInt>(input.size());
  stream.next_out = reinterpret_cast<Bytef*>(text.data());
  stream.avail_out = static_cast<uInt>(text.size());
  const int state = inflate(&stream, Z_FINISH);
  inflateEnd(&stream);
  text.resize(state == Z_STREAM_END ? stream.total_out : 0);
  return text;
}

TEST(Gzip, ComesBack) {
  std::string text;
  for (std::int64_t i = 0; i < 200000; ++i) text += "op " + std::to_string(i * i % 9973) + "\n";
  const std::string packed = gzip(text);
  EXPECT_LT(packed.size(), text.size() / 2);
  EXPECT_EQ(gunzip(packed, text.size() + 1), text);
  EXPECT_EQ(gunzip(gzip("a"), 2), "a");
  EXPECT_EQ(gunzip(gzip(""), 2), "");
}

TEST(Gzip, HasNoTime) {
  const std::string packed = gzip("a");
  EXPECT_EQ(packed.substr(0, 3), "\x1F\x8B\x08");
  EXPECT_EQ(packed.substr(4, 4), std::string(4, '\0'));
}

}  // namespace
}  // namespace fpdt::test
