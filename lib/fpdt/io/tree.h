// A parsed YAML or JSON document as one small tree, and the strict reading of its maps.
//
// Both parsers refuse ambiguous constructs (duplicate keys, aliases, octal numbers) and leave
// scalars as text. `Fields` converts a scalar when the reader asks for it, remembers which keys
// were asked for, and reports the others. All findings of a document are collected, so that its
// author sees them at once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "fpdt/base/error.h"
#include "fpdt/base/suggest.h"
#include "fpdt/base/units.h"
#include "fpdt/spec/cluster.h"

namespace fpdt {

// plain: an unquoted scalar (in JSON: a number, true or false); text: a quoted one.
enum class NodeKind : std::uint8_t { null, plain, text, list, map };

struct Node {
  NodeKind kind = NodeKind::null;
  std::int32_t line = 0;  // 1-based; 0 in JSON, whose parser does not report it
  std::int32_t column = 0;
  std::string key;   // within a map
  std::string text;  // of a scalar
  std::vector<Node> items;

  // The entry of a map; nullptr if it does not exist.
  [[nodiscard]] const Node* find(std::string_view name) const;
  [[nodiscard]] bool is_yaml() const { return line > 0; }
};

// "a list", "nothing", "\"80\"".
std::string describe_found(const Node& node);

// The findings about one document. Codes: Y100 syntax, Y101 a refused construct, Y102 duplicate
// key, Y103 unknown key, Y104 missing key, Y105 wrong type or value, Y106 values that contradict
// each other. The hundredth `add` raises.
class FileFindings {
 public:
  explicit FileFindings(std::string_view file_name) : file_name_(file_name) {}

  void add(std::string_view code, std::int32_t line, std::int32_t column, std::string message);
  void add(std::string_view code, const Node& node, std::string message) {
    add(code, node.line, node.column, std::move(message));
  }
  void append(std::vector<Diagnostic> findings);
  [[nodiscard]] bool empty() const { return list_.empty(); }
  // Throws InputError when there are findings.
  void raise() const;

 private:
  std::string file_name_;
  std::vector<Diagnostic> list_;
};

// Conversions of a scalar; false when its form is wrong. Integers are decimal without leading zeros
// and never quoted; strings need quotes in JSON.
bool convert(const Node& node, std::int64_t& value);
bool convert(const Node& node, double& value);
bool convert(const Node& node, bool& value);
bool convert(const Node& node, std::string& value);
bool convert(const Node& node, Bytes& value);
bool convert(const Node& node, std::vector<double>& values);
bool convert_tokens(const Node& node, std::int64_t& value);
// A text for messages: at most 4096 bytes that are printable.
bool convert_line(const Node& node, std::string& value);

// "an integer", for messages.
std::string_view expected(const std::int64_t&);
std::string_view expected(const double&);
std::string_view expected(const bool&);
std::string_view expected(const std::string&);
std::string_view expected(const Bytes&);
std::string_view expected(const std::vector<double>&);

// The keys of one map, and a reading visitor of the descriptions in description.h. The strings of
// requested keys must outlive it.
class Fields {
 public:
  // `path` names the map in messages; "" for the document.
  Fields(const Node& node, std::string path, FileFindings& findings);

  // The node of a key, which counts as known afterwards.
  const Node* find(std::string_view key);
  [[nodiscard]] bool has(std::string_view key) const { return node_->find(key) != nullptr; }

  template <class T>
  void required(std::string_view key, T& value) {
    if (find(key) == nullptr) return missing(key);
    optional(key, value);
  }
  template <class T>
  void optional(std::string_view key, T& value) {
    const Node* node = find(key);
    if (node == nullptr) return;
    if constexpr (HasWords<T>) {
      constexpr static auto kWords = words<T>();
      auto index = static_cast<std::uint8_t>(value);
      read_word(*node, key, index, kWords);
      value = static_cast<T>(index);
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!convert_line(*node, value)) wrong(*node, key, expected(value));
    } else if (!convert(*node, value)) {
      wrong(*node, key, expected(value));
    }
  }
  // Printers omit these where they equal `usual`; readers treat them as optional.
  template <class T>
  void sparse(std::string_view key, T& value, const std::type_identity_t<T>& = {}) {
    optional(key, value);
  }
  // A number, or a map of `typical`, `low` and `high`.
  void sparse(std::string_view key, Rate& rate, const Rate& = {});
  // Maps from sizes to shares, and from kinds to rates.
  void sparse(std::string_view key, std::vector<SizeShare>& points);
  void sparse(std::string_view key, std::vector<KindRate>& kinds);
  template <class T>
  void sparse_group(std::string_view key, T& value) {
    group(key, value);
  }
  void tokens(std::string_view key, std::int64_t& value);
  // An integer, or a word that stands for 0.
  void count_or_word(std::string_view key, std::int64_t& value, std::string_view zero);
  // A map from some of `names` to numbers from 0 to 1. `host` may stand for 0 and `device` for 1.
  // Printers omit those that equal `usual`.
  void fractions(std::string_view key, std::span<double> values,
                 std::span<const std::string_view> names, double usual);
  // A list of integers of at least 1, or one integer for a list of one; replaces `values`.
  void integers(std::string_view key, std::vector<std::int64_t>& values);
  // A list of some of `names`, by their indices; replaces `values`. Printers leave out an empty
  // list that is not required.
  void indices(std::string_view key, std::vector<std::int64_t>& values,
               const std::vector<std::string>& names, bool required = true);
  // Whether the map has one of these keys. Printers return whether they print them.
  [[nodiscard]] bool has_either(std::string_view one, std::string_view other,
                                bool /*print*/) const {
    return has(one) || has(other);
  }
  // Refuses a key of earlier files and names its new place.
  void moved(std::string_view key, std::string_view now);
  // One of `words`, by its index.
  void word(std::string_view key, std::uint8_t& value, std::span<const std::string_view> words) {
    const Node* node = find(key);
    if (node != nullptr) read_word(*node, key, value, words);
  }
  // The same; printers omit the first one.
  void sparse_word(std::string_view key, std::uint8_t& value,
                   std::span<const std::string_view> words) {
    word(key, value, words);
  }
  // A nested map with its own description.
  template <class T>
  void group(std::string_view key, T& value) {
    const Node* node = find(key);
    if (node == nullptr) return;
    Fields nested(*node, path_of(key), *findings_);
    describe(value, nested);
    nested.done();
  }
  // A list of maps, which `describe_one` describes; replaces `values`.
  template <class T, class Describe>
  void list(std::string_view key, std::vector<T>& values, const Describe& describe_one) {
    const Node* node = find(key);
    if (node == nullptr) return;
    if (node->kind != NodeKind::list) return wrong(*node, key, "a list");
    values.clear();
    for (const Node& item : node->items) {
      Fields nested(item, path_of(key) + "[" + std::to_string(values.size()) + "]", *findings_);
      describe_one(values.emplace_back(), nested);
      nested.done();
    }
  }

  void wrong(const Node& node, std::string_view key, std::string_view expectation);
  void missing(std::string_view key);
  // Reports every key that no reader asked for.
  void done();

  [[nodiscard]] std::string path_of(std::string_view key) const;
  // Whether a reader asked for the key.
  [[nodiscard]] bool knows(std::string_view key) const;
  [[nodiscard]] FileFindings& findings() { return *findings_; }

 private:
  void read_word(const Node& node, std::string_view key, std::uint8_t& value,
                 std::span<const std::string_view> words);
  // The index of the word that the node is; findings if it is none of them.
  std::size_t index_of(const Node& node, std::string_view key,
                       std::span<const std::string_view> words);

  const Node* node_;
  std::string path_;
  FileFindings* findings_;
  std::vector<std::string_view> known_;
  std::vector<std::string_view> moved_;  // keys of earlier files, already reported
};

}  // namespace fpdt
