// docs/reference/yaml.md has every key that the readers know, and no other, with type and default.
#include <algorithm>
#include <gmock/gmock.h>
#include <string>
#include <type_traits>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "fpdt/io/description.h"
#include "fpdt/io/file.h"

namespace fpdt {
namespace {

// A visitor of the descriptions that writes the beginning of a row for each key.
class KeyRows {
 public:
  explicit KeyRows(std::vector<std::string>& rows, std::string path = "")
      : rows_(&rows), path_(std::move(path)) {}

  template <class T>
  void required(std::string_view key, const T&) {
    row(key, type<T>(), "required");
  }
  template <class T>
  void optional(std::string_view key, const T& value) {
    row(key, type<T>(), text(value));
  }
  template <class T>
  void sparse(std::string_view key, const T& value, const std::type_identity_t<T>& = {}) {
    row(key, type<T>(), text(value));
  }
  void sparse(std::string_view key, const Rate&, const Rate& usual = {}) {
    row(key, "rate", fmt::format("{:g}", usual.typical));
  }
  void sparse(std::string_view key, const std::vector<SizeShare>&) {
    row(key, "map of sizes to shares", "none");
  }
  void sparse(std::string_view key, const std::vector<KindRate>&) {
    row(key, "map of kinds of op to rates", "none");
  }
  void tokens(std::string_view key, std::int64_t value) {
    row(key, "count, such as `64K`", format_tokens(value));
  }
  void count_or_word(std::string_view key, std::int64_t, std::string_view zero) {
    row(key, fmt::format("integer or `{}`", zero), zero);
  }
  void fractions(std::string_view key, std::span<const double>,
                 std::span<const std::string_view> names, double usual) {
    row(key, fmt::format("map of `{}` to `host`, `device` or 0 to 1", fmt::join(names, "`, `")),
        usual == 0 ? "`host`" : "`device`");
  }
  void integers(std::string_view key, const std::vector<std::int64_t>& values) {
    row(key, "integer or list of integers", fmt::format("{}", fmt::join(values, ", ")));
  }
  void moved(std::string_view /*key*/, std::string_view /*now*/) {}
  template <class T>
  void group(std::string_view key, const T& value) {
    row(key, "map", "see its keys");
    KeyRows nested(*rows_, path_ + std::string(key) + ".");
    describe(value, nested);
  }
  template <class T>
  void sparse_group(std::string_view key, const T& value) {
    group(key, value);
  }
  template <class T>
  void list(std::string_view key, const std::vector<T>&) {
    row(key, "list of maps", "one map");
    KeyRows nested(*rows_, fmt::format("{}{}[].", path_, key));
    const T item;
    describe(item, nested);
  }
  void row(std::string_view key, std::string_view type, std::string_view usual) {
    rows_->push_back(fmt::format("| `{}{}` | {} | {} |", path_, key, type, usual));
  }

 private:
  template <class T>
  static std::string type() {
    if constexpr (HasWords<T>) {
      return fmt::format("`{}`", fmt::join(words<T>(), "`, `"));
    } else if constexpr (std::is_same_v<T, bool>) {
      return "`true`, `false`";
    } else if constexpr (std::is_same_v<T, std::string>) {
      return "text";
    } else if constexpr (std::is_same_v<T, Bytes>) {
      return "size, such as `80GiB`";
    } else {
      return std::is_integral_v<T> ? "integer" : "number";
    }
  }
  template <class T>
  static std::string text(const T& value) {
    if constexpr (HasWords<T>) {
      return fmt::format("`{}`", word(value));
    } else if constexpr (std::is_same_v<T, bool>) {
      return fmt::format("`{}`", value);
    } else if constexpr (std::is_same_v<T, Bytes>) {
      return fmt::format("{}", value.value);
    } else {
      return fmt::format("{}", value);
    }
  }

  std::vector<std::string>* rows_;
  std::string path_;
};

template <class T>
std::vector<std::string> rows_of() {
  std::vector<std::string> rows;
  KeyRows lister(rows);
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
  rows.emplace_back("| `parameters` | integer | required |");
  return rows;
}

// The rows of the table under a heading, without their last cell, the meaning. A meaning is not
// empty.
std::vector<std::string> rows_under(const std::string& page, const std::string& heading) {
  std::vector<std::string> rows;
  const std::size_t begin = page.find("\n## " + heading + "\n");
  EXPECT_NE(begin, std::string::npos) << heading;
  if (begin == std::string::npos) return rows;
  const std::string section = page.substr(begin, page.find("\n## ", begin + 1) - begin);
  for (std::size_t at = 0; (at = section.find("\n| `", at)) != std::string::npos; ++at) {
    const std::string line = section.substr(at + 1, section.find('\n', at + 1) - at - 1);
    const std::size_t meaning = line.rfind(" | ");
    EXPECT_GT(line.size(), meaning + 6) << line;
    rows.push_back(line.substr(0, meaning + 2));
  }
  return rows;
}

TEST(Reference, HasEveryKeyOfEveryFile) {
  const std::string page = read_file(FPDT_SOURCE_DIR "/docs/reference/yaml.md", 1 << 20);
  EXPECT_THAT(rows_under(page, "Model"), testing::ElementsAreArray(rows_of_models()));
  EXPECT_THAT(rows_under(page, "Cluster"), testing::ElementsAreArray(rows_of<ClusterSpec>()));
  EXPECT_THAT(rows_under(page, "Strategy"), testing::ElementsAreArray(rows_of<Strategy>()));
}

}  // namespace
}  // namespace fpdt
