// Applies the rules to this project. A failure lists every breach and the remedy.
#include <gtest/gtest.h>

#include "rules.h"

namespace fpdt::tidy {
namespace {

const Tree& project() {
  static const Tree tree = read_tree(FPDT_SOURCE_DIR);
  return tree;
}

void expect_none(const Breaches& breaches) {
  std::string text;
  for (const std::string& breach : breaches) text += breach + '\n';
  EXPECT_TRUE(breaches.empty()) << text;
}

TEST(tidy, the_tree_was_read) { EXPECT_TRUE(project().count("lib/fpdt/base/math.h")); }

TEST(tidy, layers) { expect_none(layers(project())); }
TEST(tidy, third_parties) { expect_none(third_parties(project())); }
TEST(tidy, sizes) { expect_none(sizes(project())); }
TEST(tidy, repeated_types) { expect_none(repeated_types(project())); }
TEST(tidy, banned_text) { expect_none(banned_text(project())); }
TEST(tidy, opening_comments) { expect_none(opening_comments(project())); }
TEST(tidy, unlisted_sources) { expect_none(unlisted_sources(project())); }
TEST(tidy, untested_headers) { expect_none(untested_headers(project())); }
TEST(tidy, broken_links) { expect_none(broken_links(project())); }
TEST(tidy, undocumented_words) { expect_none(undocumented_words(project())); }
TEST(tidy, undocumented_codes) { expect_none(undocumented_codes(project())); }

}  // namespace
}  // namespace fpdt::tidy
