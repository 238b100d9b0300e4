// Uses nlohmann's event stream: its own tree keeps the last of duplicate keys and turns large
// integers into reals.
#include "fpdt/io/json.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace fpdt {
namespace {

using Json = nlohmann::json;

class TreeBuilder : public nlohmann::json_sax<Json> {
 public:
  // `size`: bytes of the text.
  TreeBuilder(FileFindings& findings, std::size_t size) : findings_(&findings), size_(size) {}

  Node root;

  bool null() override { return scalar(NodeKind::null, {}); }
  bool boolean(bool value) override { return scalar(NodeKind::plain, value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override {
    return scalar(NodeKind::plain, fmt::format_int(value).str());
  }
  bool number_unsigned(number_unsigned_t value) override {
    return scalar(NodeKind::plain, fmt::format_int(value).str());
  }
  // Also receives integers over 2^64, whose digits are kept.
  bool number_float(number_float_t, const string_t& digits) override {
    return scalar(NodeKind::plain, digits);
  }
  bool string(string_t& value) override { return scalar(NodeKind::text, std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(NodeKind::map); }
  bool key(string_t& value) override {
    key_ = std::move(value);
    return true;
  }
  bool end_object() override {
    check_unique(*path_.back());
    return close();
  }
  bool start_array(std::size_t) override { return open(NodeKind::list); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t position, const std::string&,
                   const Json::exception& error) override {
    if (position > size_) {
      findings_->add("Y100", 0, 0,
                     fmt::format("the text is cut off: it ends after {} bytes", size_));
      return false;
    }
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    const std::string_view text(error.what());
    findings_->add("Y100", 0, 0, std::string(text.substr(text.find("] ") + 2)));
    return false;
  }

 private:
  bool scalar(NodeKind kind, std::string text) {
    next(kind).text = std::move(text);
    return true;
  }

  bool open(NodeKind kind) {
    if (path_.size() >= kJsonDepthMax) {
      findings_->add("Y101", 0, 0, fmt::format("nested deeper than {} levels", kJsonDepthMax));
      return false;
    }
    path_.push_back(&next(kind));
    return true;
  }

  // A list grows by doubling, and most of a large file is in short ones.
  bool close() {
    path_.back()->items.shrink_to_fit();
    path_.pop_back();
    return true;
  }

  // Nodes on the path are last children, so growing the open list moves none of them.
  Node& next(NodeKind kind) {
    Node& node = path_.empty() ? root : path_.back()->items.emplace_back();
    node.kind = kind;
    if (!path_.empty() && path_.back()->kind == NodeKind::map) node.key = std::move(key_);
    return node;
  }

  void check_unique(const Node& map) {
    std::vector<std::string_view> keys;
    keys.reserve(map.items.size());
    for (const Node& item : map.items) keys.push_back(item.key);
    std::sort(keys.begin(), keys.end());
    const auto twice = std::adjacent_find(keys.begin(), keys.end());
    if (twice != keys.end()) {
      findings_->add("Y102", 0, 0, fmt::format("\"{}\": duplicate key", twice->substr(0, 200)));
    }
  }

  FileFindings* findings_;
  std::size_t size_;
  std::vector<Node*> path_;
  std::string key_;
};

// Every value but the first follows a comma or an opening bracket outside of strings.
std::int64_t count_values(std::string_view text) {
  std::int64_t values = 1;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string && c == '\\') {
      ++i;
    } else if (c == '"') {
      in_string = !in_string;
    } else if (!in_string && (c == ',' || c == '[' || c == '{')) {
      ++values;
    }
  }
  return values;
}

}  // namespace

Node parse_json(std::string_view text, FileFindings& findings, std::int64_t values_max) {
  if (text.starts_with("\xEF\xBB\xBF")) {
    findings.add("Y101", 0, 0, "expected UTF-8 without a byte-order mark");
    findings.raise();
  }
  if (const std::int64_t values = count_values(text); values > values_max) {
    findings.add(
        "Y101", 0, 0,
        fmt::format("may hold {} values, more than the {} that a file of its kind and size "
                    "needs",
                    values, values_max));
    findings.raise();
  }
  TreeBuilder builder(findings, text.size());
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) findings.raise();
  return std::move(builder.root);
}

std::string json_text(const Node& node) {
  if (node.kind == NodeKind::null) return "null";
  if (node.kind == NodeKind::plain) return node.text;
  if (node.kind == NodeKind::text) return json_string(node.text);
  const bool is_map = node.kind == NodeKind::map;
  std::string text = is_map ? "{" : "[";
  for (const Node& item : node.items) {
    if (text.size() > 1) text += ',';
    if (is_map) text += json_string(item.key) + ':';
    text += json_text(item);
  }
  return text + (is_map ? '}' : ']');
}

std::string json_string(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace fpdt
