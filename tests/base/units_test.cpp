// Sizes as people write them, and texts that must not pass as a size.
#include "fpdt/base/units.h"

#include <gtest/gtest.h>

namespace fpdt {
namespace {

constexpr std::int64_t kGibi = std::int64_t{1} << 30;

TEST(units, parses_bytes) {
  EXPECT_EQ(parse_bytes("4096B"), Bytes{4096});
  EXPECT_EQ(parse_bytes("512 MiB"), Bytes{kGibi / 2});
  EXPECT_EQ(parse_bytes("80GiB"), Bytes{80 * kGibi});
  EXPECT_EQ(parse_bytes("1.5GiB"), Bytes{3 * kGibi / 2});
  EXPECT_EQ(parse_bytes("60.1GiB"), Bytes{64531883622}) << "to the nearest byte";
  EXPECT_EQ(parse_bytes("1.005KB"), Bytes{1005});
  EXPECT_EQ(parse_bytes("80GB"), Bytes{80'000'000'000});
  EXPECT_EQ(parse_bytes("2TiB"), Bytes{2048 * kGibi});
  EXPECT_EQ(parse_bytes("0B"), Bytes{0});
}

TEST(units, parses_bytes_up_to_2_to_the_62) {
  EXPECT_EQ(parse_bytes("4611686018427387904B"), Bytes{std::int64_t{1} << 62});
  EXPECT_EQ(parse_bytes("4194304TiB"), Bytes{std::int64_t{1} << 62});
  EXPECT_EQ(parse_bytes("9223372036854775807B"), std::nullopt);
  EXPECT_EQ(parse_bytes("9223372036854775808B"), std::nullopt);
  EXPECT_EQ(parse_bytes("8388608TiB"), std::nullopt);
  EXPECT_EQ(parse_bytes("99999999999999999999999B"), std::nullopt);
}

TEST(units, refuses_what_is_no_size) {
  for (const char* text :
       {"",       " ",       "80",     "GiB",    "-1GiB",  "+1GiB",   "9EiB",     "80gib",
        "80GiBs", "80  GiB", " 80GiB", "80GiB ", "1.5B",   "1..5GiB", "1.5.0GiB", ".",
        ".GiB",   "0x10B",   "1e3B",   "nanGiB", "infGiB", "1,5GiB"}) {
    EXPECT_EQ(parse_bytes(text), std::nullopt) << '"' << text << '"';
  }
}

TEST(units, parses_tokens) {
  EXPECT_EQ(parse_tokens("2M"), std::int64_t{1} << 21);
  EXPECT_EQ(parse_tokens("64K"), 65536);
  EXPECT_EQ(parse_tokens("1G"), kGibi);
  EXPECT_EQ(parse_tokens("2Mi"), std::int64_t{1} << 21);
  EXPECT_EQ(parse_tokens("2000000"), 2000000);
  EXPECT_EQ(parse_tokens("0.5M"), std::int64_t{1} << 19);
  EXPECT_EQ(parse_tokens("60.1K"), std::nullopt) << "a length is exact";
  EXPECT_EQ(parse_tokens("2m"), std::int64_t{1} << 21);
  EXPECT_EQ(parse_tokens("64k"), 65536);
  EXPECT_EQ(parse_tokens("1g"), kGibi);
  EXPECT_EQ(parse_tokens("1e6"), 1000000);
  EXPECT_EQ(parse_tokens("1.5e3"), 1500);
}

TEST(units, refuses_what_is_no_token_count) {
  for (const char* text : {"", "-1", "0.5", "2T", "2MB", "2MiB", "K", "1 000", "9007199254740993G",
                           "1e-1", "1e", "e6", "1e6M", "1e+6", "1.5e0", "1e30", "1e999", "mM"}) {
    EXPECT_EQ(parse_tokens(text), std::nullopt) << '"' << text << '"';
  }
}

TEST(units, formats_bytes_with_three_digits) {
  EXPECT_EQ(format_throughput(577.44), "577.4");
  EXPECT_EQ(format_throughput(6310.2), "6310");
  EXPECT_EQ(format_throughput(11032.4), "11032");
  EXPECT_EQ(format_bytes(Bytes{0}), "0 B");
  EXPECT_EQ(format_bytes(Bytes{1023}), "1023 B");
  EXPECT_EQ(format_bytes(Bytes{1024}), "1.00 KiB");
  EXPECT_EQ(format_bytes(Bytes{3 * kGibi / 2}), "1.50 GiB");
  EXPECT_EQ(format_bytes(Bytes{80 * kGibi}), "80.0 GiB");
  EXPECT_EQ(format_bytes(Bytes{640 * kGibi}), "640 GiB");
  EXPECT_EQ(format_bytes(Bytes{-2048}), "-2.00 KiB");
}

TEST(units, formats_tokens) {
  EXPECT_EQ(format_tokens(0), "0");
  EXPECT_EQ(format_tokens(1000), "1000");
  EXPECT_EQ(format_tokens(1024), "1K");
  EXPECT_EQ(format_tokens(3 << 20), "3M");
  EXPECT_EQ(format_tokens((3 << 20) + 1024), "3073K");
  EXPECT_EQ(format_tokens(2 * kGibi), "2G");
}

TEST(units, tokens_survive_a_round_trip) {
  for (const std::int64_t tokens :
       {std::int64_t{1}, std::int64_t{12289}, std::int64_t{65536}, 5 * kGibi}) {
    EXPECT_EQ(parse_tokens(format_tokens(tokens)), tokens);
  }
}

TEST(units, bytes_add_and_scale) {
  EXPECT_EQ(Bytes{3} + Bytes{4}, Bytes{7});
  EXPECT_EQ(Bytes{3} - Bytes{4}, Bytes{-1});
  EXPECT_EQ(5 * Bytes{7}, Bytes{35});
  EXPECT_LT(Bytes{3}, Bytes{4});
}

}  // namespace
}  // namespace fpdt
