// One table serves for printing and for parsing.
#include "fpdt/base/words.h"

#include <gtest/gtest.h>

namespace fpdt {
namespace {

enum class Fruit : unsigned char { apple, pear };
constexpr auto words_of(Fruit) { return word_list("apple", "pear"); }

TEST(Words, AreReadBothWays) {
  for (const Fruit fruit : {Fruit::apple, Fruit::pear}) {
    EXPECT_EQ(parse_word<Fruit>(word(fruit)), fruit);
  }
  EXPECT_EQ(word(Fruit::pear), "pear");
  EXPECT_EQ(words<Fruit>().size(), 2u);
  EXPECT_FALSE(parse_word<Fruit>("plum"));
  EXPECT_FALSE(parse_word<Fruit>(""));
}

}  // namespace
}  // namespace fpdt
