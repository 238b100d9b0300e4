// Suggests the nearest known word if it is near enough to be what was meant.
#include "fpdt/base/suggest.h"

#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace fpdt {
namespace {

constexpr std::array<std::string_view, 4> kWords{"device", "host_pinned", "host", "all_to_all"};

TEST(nearest_word, finds_a_slip) {
  EXPECT_EQ(nearest_word("devcie", kWords), "device");
  EXPECT_EQ(nearest_word("host-pinned", kWords), "host_pinned");
  EXPECT_EQ(nearest_word("dexize", kWords), "device");
  EXPECT_EQ(nearest_word("alltoall", kWords), "all_to_all");
  EXPECT_EQ(nearest_word("hots", kWords), "host");
}

TEST(nearest_word, finds_the_word_itself) { EXPECT_EQ(nearest_word("host", kWords), "host"); }

TEST(nearest_word, is_silent_where_the_search_would_take_long) {
  const std::string word(65, 'a');
  const std::string_view same[] = {word};
  EXPECT_EQ(nearest_word(word, same), "");
  EXPECT_EQ(nearest_word("hsot", std::vector<std::string_view>(4097, "host")), "");
}

TEST(nearest_word, prefers_silence_to_a_guess) {
  EXPECT_EQ(nearest_word("gradient", kWords), "");
  EXPECT_EQ(nearest_word("", kWords), "");
  EXPECT_EQ(nearest_word("device", {}), "");
}

}  // namespace
}  // namespace fpdt
