// A parsed document as one small tree, whether it was YAML or JSON, and the strict reading of its
// maps.
//
// Both parsers refuse what could mean two things (duplicate keys, aliases, octal numbers) and leave
// scalars as text; `Fields` converts them when the reader asks, remembers which keys were asked
// for, and reports the rest. All findings of a document are collected, so that its author sees them
// at once.
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

// plain: a scalar without quotes (in JSON: a number, true or false); text: one with quotes.
enum class NodeKind : std::uint8_t { null, plain, text, list, map };

struct Node {
  NodeKind kind = NodeKind::null;
  std::int32_t line = 0;  // 1-based; 0 in JSON, whose parser does not tell
  std::int32_t column = 0;
  std::string key;   // within a map
  std::string text;  // of a scalar
  std::vector<Node> items;

  // The entry of a map; nullptr where there is none.
  [[nodiscard]] const Node* find(std::string_view name) const;
  [[nodiscard]] bool is_yaml() const { return line > 0; }
};

// "a list", "nothing", "\"80\"".
std::string describe_found(const Node& node);

// What is wrong with one document. Codes: Y100 syntax, Y101 a construct that we refuse, Y102
// duplicate key, Y103 unknown key, Y104 missing key, Y105 wrong type or value, Y106 values that
// contradict each other. With the hundredth finding `add` raises.
class FileFindings {
 public:
  explicit FileFindings(std::string_view file_name) : file_name_(file_name) {}

  void add(std::string_view code, std::int32_t line, std::int32_t column, std::string message);
  void add(std::string_view code, const Node& node, std::string message) {
    add(code, node.line, node.column, std::move(message));
  }
  void append(std::vector<Diagnostic> findings);
  [[nodiscard]] bool empty() const { return list_.empty(); }
  // InputError when there are findings.
  void raise() const;

 private:
  std::string file_name_;
  std::vector<Diagnostic> list_;
};

// Conversions of a scalar: false when it is not of that form. Integers are decimal without
// superfluous zeros and never quoted; strings need quotes in JSON.
bool convert(const Node& node, std::int64_t& value);
bool convert(const Node& node, double& value);
bool convert(const Node& node, bool& value);
bool convert(const Node& node, std::string& value);
bool convert(const Node& node, Bytes& value);
bool convert_tokens(const Node& node, std::int64_t& value);
// What may stand in a message: at most 4096 bytes without control characters.
bool convert_line(const Node& node, std::string& value);

// "an integer", for messages.
std::string_view expected(const std::int64_t&);
std::string_view expected(const double&);
std::string_view expected(const bool&);
std::string_view expected(const std::string&);
std::string_view expected(const Bytes&);

// The keys of one map. Also a reading visitor of the descriptions in description.h. Keys that are
// asked for must outlive it.
class Fields {
 public:
  // `path` names the map in messages, "" for the document.
  Fields(const Node& node, std::string path, FileFindings& findings);

  // The node of a key, which counts as known from now on.
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
      read_word(*node, key, value);
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!convert_line(*node, value)) wrong(*node, key, expected(value));
    } else if (!convert(*node, value)) {
      wrong(*node, key, expected(value));
    }
  }
  // Printers leave these out where they equal `usual`; for a reader they are merely optional.
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
  // A map from some of `names` to numbers of 0 to 1, written `host` for 0 and `device` for 1 if you
  // like.
  void fractions(std::string_view key, std::span<double> values,
                 std::span<const std::string_view> names);
  // A nested map with a description of its own.
  template <class T>
  void group(std::string_view key, T& value) {
    const Node* node = find(key);
    if (node == nullptr) return;
    Fields nested(*node, path_of(key), *findings_);
    describe(value, nested);
    nested.done();
  }
  // A list of described maps; replaces `values`.
  template <class T>
  void list(std::string_view key, std::vector<T>& values) {
    const Node* node = find(key);
    if (node == nullptr) return;
    if (node->kind != NodeKind::list) return wrong(*node, key, "a list");
    values.clear();
    for (const Node& item : node->items) {
      Fields nested(item, path_of(key) + "[" + std::to_string(values.size()) + "]", *findings_);
      describe(values.emplace_back(), nested);
      nested.done();
    }
  }

  void wrong(const Node& node, std::string_view key, std::string_view expectation);
  void missing(std::string_view key);
  // Reports every key that nobody asked for.
  void done();

  [[nodiscard]] std::string path_of(std::string_view key) const;
  // Whether somebody asked for the key.
  [[nodiscard]] bool knows(std::string_view key) const;
  [[nodiscard]] FileFindings& findings() { return *findings_; }

 private:
  template <class E>
  void read_word(const Node& node, std::string_view key, E& value) {
    std::string text;
    if (!convert(node, text)) return wrong(node, key, "a word");
    const std::optional<E> parsed = parse_word<E>(text);
    if (!parsed) return wrong_word(node, key, words<E>());
    value = *parsed;
  }
  void wrong_word(const Node& node, std::string_view key, std::span<const std::string_view> words);

  const Node* node_;
  std::string path_;
  FileFindings* findings_;
  std::vector<std::string_view> known_;
};

}  // namespace fpdt
