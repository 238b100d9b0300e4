// Conversions of scalars and the messages about them.
#include "fpdt/io/tree.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "fpdt/base/printable.h"

namespace fpdt {
namespace {

// More findings help nobody, and a hostile file could cause a million.
constexpr std::size_t kFindingsMax = 100;
constexpr std::size_t kTextMax = 4096;  // length of the longest path

// "010" is 8 to some readers and 10 to others; "0x10", "+1", ".5", "1_000", ".nan" are no better.
bool is_unambiguous_number(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (text.empty() || !is_digit(text.front())) return false;
  return text.size() == 1 || text.front() != '0' || !is_digit(text[1]);
}

template <class T>
bool convert_number(const Node& node, T& value) {
  if (node.kind != NodeKind::plain || !is_unambiguous_number(node.text)) return false;
  T parsed{};
  const char* end = node.text.data() + node.text.size();
  const auto [stop, error] = std::from_chars(node.text.data(), end, parsed);
  if (error != std::errc{} || stop != end) return false;
  value = parsed;
  return true;
}

bool is_scalar(const Node& node) {
  return node.kind == NodeKind::plain || node.kind == NodeKind::text;
}

}  // namespace

const Node* Node::find(std::string_view name) const {
  if (kind != NodeKind::map) return nullptr;
  for (const Node& item : items) {
    if (item.key == name) return &item;
  }
  return nullptr;
}

std::string describe_found(const Node& node) {
  constexpr std::size_t kShown = 60;
  switch (node.kind) {
    case NodeKind::null:
      return "nothing";
    case NodeKind::list:
      return "a list";
    case NodeKind::map:
      return "a map";
    case NodeKind::plain:
    case NodeKind::text:
      break;
  }
  const bool cut = node.text.size() > kShown;
  return fmt::format("\"{}\"{}", node.text.substr(0, kShown), cut ? "..." : "");
}

void FileFindings::add(std::string_view code, std::int32_t line, std::int32_t column,
                       std::string message) {
  const std::string where =
      line > 0 ? fmt::format("{}:{}:{}", file_name_, line, column) : file_name_;
  list_.push_back({std::string(code), where, std::move(message)});
  if (list_.size() >= kFindingsMax) raise();
}

void FileFindings::append(std::vector<Diagnostic> findings) {
  for (Diagnostic& finding : findings) {
    finding.where = fmt::format("{}: {}", file_name_, finding.where);
    list_.push_back(std::move(finding));
  }
}

void FileFindings::raise() const {
  if (!list_.empty()) throw InputError(format_diagnostics(list_));
}

bool convert(const Node& node, std::int64_t& value) { return convert_number(node, value); }

bool convert(const Node& node, double& value) { return convert_number(node, value); }

bool convert(const Node& node, bool& value) {
  if (node.kind != NodeKind::plain || (node.text != "true" && node.text != "false")) return false;
  value = node.text == "true";
  return true;
}

bool convert(const Node& node, std::string& value) {
  if (node.kind != NodeKind::text && !(node.kind == NodeKind::plain && node.is_yaml()))
    return false;
  value = node.text;
  return true;
}

bool convert(const Node& node, Bytes& value) {
  const auto parsed = is_scalar(node) ? parse_bytes(node.text) : std::nullopt;
  if (parsed) value = *parsed;
  return parsed.has_value();
}

bool convert(const Node& node, std::vector<double>& values) {
  if (node.kind != NodeKind::list) return false;
  std::vector<double> read(node.items.size());
  for (std::size_t i = 0; i < read.size(); ++i) {
    if (!convert(node.items[i], read[i])) return false;
  }
  values = std::move(read);
  return true;
}

bool convert_line(const Node& node, std::string& value) {
  if (node.text.size() > kTextMax || printable(node.text) != node.text) return false;
  return convert(node, value);
}

bool convert_tokens(const Node& node, std::int64_t& value) {
  const bool form = is_scalar(node) && is_unambiguous_number(node.text);
  const auto parsed = form ? parse_tokens(node.text) : std::nullopt;
  if (parsed) value = *parsed;
  return parsed.has_value();
}

std::string_view expected(const std::int64_t&) { return "an integer"; }
std::string_view expected(const double&) { return "a number"; }
std::string_view expected(const bool&) { return "true or false"; }
std::string_view expected(const std::string&) { return "a text of one line"; }
std::string_view expected(const Bytes&) { return "a size such as \"80GiB\""; }
std::string_view expected(const std::vector<double>&) { return "a list of numbers"; }

Fields::Fields(const Node& node, std::string path, FileFindings& findings)
    : node_(&node), path_(std::move(path)), findings_(&findings) {
  if (node.kind == NodeKind::map) return;
  findings.add("Y105", node,
               fmt::format("{}: expected a map of keys, found {}",
                           path_.empty() ? "document" : path_, describe_found(node)));
}

const Node* Fields::find(std::string_view key) {
  known_.push_back(key);
  return node_->find(key);
}

bool Fields::knows(std::string_view key) const {
  return std::find(known_.begin(), known_.end(), key) != known_.end();
}

void Fields::sparse(std::string_view key, Rate& rate, const Rate&) {
  const Node* node = find(key);
  if (node == nullptr) return;
  if (node->kind != NodeKind::map) {
    if (!convert(*node, rate.typical)) wrong(*node, key, "a number or a map {typical, low, high}");
    rate.low = rate.high = rate.typical;
    return;
  }
  Fields nested(*node, path_of(key), *findings_);
  nested.required("typical", rate.typical);
  rate.low = rate.high = rate.typical;
  nested.optional("low", rate.low);
  nested.optional("high", rate.high);
  nested.done();
}

void Fields::sparse(std::string_view key, std::vector<SizeShare>& points) {
  const Node* node = find(key);
  if (node == nullptr) return;
  Fields nested(*node, path_of(key), *findings_);
  points.clear();
  if (node->kind != NodeKind::map) return;
  for (const Node& item : node->items) {
    SizeShare& point = points.emplace_back();
    const Node size{NodeKind::plain, item.line, item.column, "", item.key, {}};
    if (!convert(size, point.size)) nested.wrong(size, item.key, "a size as the key");
    nested.optional(item.key, point.share);
  }
}

void Fields::sparse(std::string_view key, std::vector<KindRate>& kinds) {
  const Node* node = find(key);
  if (node == nullptr) return;
  Fields nested(*node, path_of(key), *findings_);
  kinds.clear();
  for (const Node& item : node->items) {
    KindRate& one = kinds.emplace_back();
    one.kind = item.key;
    nested.sparse(item.key, one.bytes_per_second);
  }
}

void Fields::tokens(std::string_view key, std::int64_t& value) {
  const Node* node = find(key);
  if (node == nullptr) return;
  if (!convert_tokens(*node, value)) wrong(*node, key, "a token count such as 65536 or 64K");
}

void Fields::count_or_word(std::string_view key, std::int64_t& value, std::string_view zero) {
  const Node* node = find(key);
  if (node == nullptr) return;
  if (is_scalar(*node) && node->text == zero) {
    value = 0;
  } else if (!convert(*node, value) || value < 1) {
    wrong(*node, key, fmt::format("a count of at least 1 or \"{}\"", zero));
  }
}

void Fields::fractions(std::string_view key, std::span<double> values,
                       std::span<const std::string_view> names, double) {
  const Node* node = find(key);
  if (node == nullptr) return;
  Fields nested(*node, path_of(key), *findings_);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const Node* fraction = nested.find(names[i]);
    if (fraction == nullptr) continue;
    const bool word =
        is_scalar(*fraction) && (fraction->text == "host" || fraction->text == "device");
    double value = word && fraction->text == "device" ? 1 : 0;
    if (!word && (!convert(*fraction, value) || value < 0 || value > 1)) {
      nested.wrong(*fraction, names[i], "device, host, or a fraction of 0 to 1");
    }
    values[i] = value;
  }
  nested.done();
}

void Fields::integers(std::string_view key, std::vector<std::int64_t>& values) {
  const Node* node = find(key);
  if (node == nullptr) return;
  const bool list = node->kind == NodeKind::list && !node->items.empty();
  values.assign(list ? node->items.size() : 1, 0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Node& item = list ? node->items[i] : *node;
    if (convert(item, values[i]) && values[i] > 0) continue;
    return wrong(item, key, "integers of at least 1, such as 4 or [8, 4]");
  }
}

void Fields::moved(std::string_view key, std::string_view now) {
  const Node* node = node_->find(key);
  if (node == nullptr) return;
  moved_.push_back(key);
  findings_->add("Y103", *node, fmt::format("{}: is now {}", path_of(key), now));
}

void Fields::wrong(const Node& node, std::string_view key, std::string_view expectation) {
  findings_->add(
      "Y105", node,
      fmt::format("{}: expected {}, found {}", path_of(key), expectation, describe_found(node)));
}

void Fields::indices(std::string_view key, std::vector<std::int64_t>& values,
                     const std::vector<std::string>& names, bool required) {
  const Node* node = find(key);
  if (node == nullptr) return required ? missing(key) : void();
  if (node->kind != NodeKind::list) return wrong(*node, key, "a list");
  const bool named = std::any_of(names.begin(), names.end(),
                                 [](const std::string& name) { return !name.empty(); });
  if (!named) return wrong(*node, key, "names that the file gives before, in `kinds`");
  const std::vector<std::string_view> words(names.begin(), names.end());
  values.clear();
  for (const Node& item : node->items) {
    const std::size_t found = index_of(item, key, words);
    if (found == words.size()) return;
    values.push_back(static_cast<std::int64_t>(found));
  }
}

void Fields::read_word(const Node& node, std::string_view key, std::uint8_t& value,
                       std::span<const std::string_view> words) {
  const std::size_t found = index_of(node, key, words);
  if (found < words.size()) value = static_cast<std::uint8_t>(found);
}

std::size_t Fields::index_of(const Node& node, std::string_view key,
                             std::span<const std::string_view> words) {
  std::string text;
  if (!convert(node, text)) {
    wrong(node, key, "a word");
    return words.size();
  }
  const auto found = std::find(words.begin(), words.end(), text);
  if (found != words.end()) return static_cast<std::size_t>(found - words.begin());
  const std::string nearest = nearest_word(node.text, words);
  findings_->add(
      "Y105", node,
      fmt::format("{}: expected one of {}, found {}{}", path_of(key), fmt::join(words, ", "),
                  describe_found(node),
                  nearest.empty() ? "" : fmt::format("; did you mean \"{}\"?", nearest)));
  return words.size();
}

void Fields::missing(std::string_view key) {
  if (node_->kind != NodeKind::map) return;
  findings_->add("Y104", *node_, fmt::format("{}: this key is required", path_of(key)));
}

void Fields::done() {
  if (node_->kind != NodeKind::map) return;
  for (const Node& item : node_->items) {
    if (knows(item.key) || std::find(moved_.begin(), moved_.end(), item.key) != moved_.end()) {
      continue;
    }
    const std::set<std::string_view> known(known_.begin(), known_.end());
    const std::string nearest = nearest_word(item.key, known_);
    findings_->add(
        "Y103", item,
        fmt::format("{}: unknown key{}", path_of(item.key),
                    nearest.empty() ? fmt::format("; known are {}", fmt::join(known, ", "))
                                    : fmt::format("; did you mean \"{}\"?", nearest)));
  }
}

std::string Fields::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

}  // namespace fpdt
