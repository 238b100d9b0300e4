// Rows of docs/reference/yaml.md, as the descriptions of files make them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fpdt/io/description.h"

namespace fpdt::test {

// A visitor of the descriptions that writes the row of each key; without its meaning, where the
// description says none.
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
  void sparse(std::string_view key, const std::vector<double>&) {
    row(key, "list of numbers", "none");
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
  void sparse_word(std::string_view key, std::uint8_t value,
                   std::span<const std::string_view> words) {
    word(key, value, words);
  }
  void word(std::string_view key, std::uint8_t value, std::span<const std::string_view> words) {
    row(key, fmt::format("`{}`", fmt::join(words, "`, `")), fmt::format("`{}`", words[value]));
  }
  void indices(std::string_view key, const std::vector<std::int64_t>&,
               const std::vector<std::string>&, bool required = true) {
    row(key, "list of names", required ? "required" : "none");
  }
  [[nodiscard]] static bool has_either(std::string_view /*one*/, std::string_view /*other*/,
                                       bool print) {
    return print;
  }
  // Of the next key.
  void meaning(std::string_view text) { meaning_ = text; }
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
  template <class T, class Describe>
  void list(std::string_view key, const std::vector<T>&, const Describe& describe_one) {
    row(key, "list of maps", "one map");
    KeyRows nested(*rows_, fmt::format("{}{}[].", path_, key));
    T item;
    describe_one(item, nested);
  }
  void row(std::string_view key, std::string_view type, std::string_view usual) {
    rows_->push_back(fmt::format("| `{}{}` | {} | {} |", path_, key, type, usual));
    if (!meaning_.empty()) rows_->back() += fmt::format(" {} |", meaning_);
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
      return fmt::format("`{}`", fpdt::word(value));
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
  std::string meaning_;
};

}  // namespace fpdt::test
