// docs/reference/yaml.md has every key that the readers know, and no other, with type and default.
// Of keys of a strategy it has the meaning as well.
#include <algorithm>
#include <gmock/gmock.h>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fpdt/io/file.h"

#include "key_rows.h"

namespace fpdt {
namespace {

template <class T>
std::vector<std::string> rows_of() {
  std::vector<std::string> rows;
  test::KeyRows lister(rows);
  const T file;
  describe(file, lister);
  return rows;
}

// What the reader of model files adds to the description.
std::vector<std::string> rows_of_models() {
  std::vector<std::string> rows = rows_of<ModelSpec>();
  std::replace(rows.begin(), rows.end(), std::string("| `kv_heads` | integer | 0 |"),
               std::string("| `kv_heads` | integer | `heads` |"));
  std::replace(rows.begin(), rows.end(), std::string("| `head_dim` | integer | 0 |"),
               std::string("| `head_dim` | integer | `hidden` / `heads` |"));
  // A model of several kinds has other keys for them, in the same place.
  ModelSpec mixed;
  mixed.kinds.resize(2);
  std::vector<std::string> of_kinds;
  test::KeyRows lister(of_kinds);
  describe_kinds(std::as_const(mixed), lister);
  rows.insert(
      std::find(rows.begin(), rows.end(), "| `tied_embeddings` | `true`, `false` | `false` |"),
      of_kinds.begin(), of_kinds.end());
  rows.emplace_back("| `parameters` | integer | required |");
  return rows;
}

// The rows of the table under a heading, with or without their last cell, the meaning, which is not
// empty.
std::vector<std::string> rows_under(const std::string& page, const std::string& heading,
                                    bool meanings = false) {
  std::vector<std::string> rows;
  const std::size_t begin = page.find("\n## " + heading + "\n");
  EXPECT_NE(begin, std::string::npos) << heading;
  if (begin == std::string::npos) return rows;
  const std::string section = page.substr(begin, page.find("\n## ", begin + 1) - begin);
  for (std::size_t at = 0; (at = section.find("\n| `", at)) != std::string::npos; ++at) {
    const std::string line = section.substr(at + 1, section.find('\n', at + 1) - at - 1);
    const std::size_t meaning = line.rfind(" | ");
    EXPECT_GT(line.size(), meaning + 6) << line;
    rows.push_back(meanings ? line : line.substr(0, meaning + 2));
  }
  return rows;
}

TEST(Reference, HasEveryKeyOfEveryFile) {
  const std::string page = read_file(FPDT_SOURCE_DIR "/docs/reference/yaml.md", 1 << 20);
  EXPECT_THAT(rows_under(page, "Model"), testing::ElementsAreArray(rows_of_models()));
  EXPECT_THAT(rows_under(page, "Cluster"), testing::ElementsAreArray(rows_of<ClusterSpec>()));
  EXPECT_THAT(rows_under(page, "Strategy", true), testing::ElementsAreArray(rows_of<Strategy>()));
}

}  // namespace
}  // namespace fpdt
