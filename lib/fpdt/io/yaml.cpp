// Uses yaml-cpp's event stream, so that hostile constructs are refused before its tree is built.
#include "fpdt/io/yaml.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

namespace fpdt {
namespace {

class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(FileFindings& findings) : findings_(&findings) {}

  Node root;

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    scalar(mark, NodeKind::null, "", anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    refuse(mark, "aliases are not allowed");
    scalar(mark, NodeKind::null, "", 0);
  }
  // yaml-cpp tags plain scalars "?" and quoted ones "!".
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    check_tag(mark, tag);
    scalar(mark, tag == "?" ? NodeKind::plain : NodeKind::text, value, anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    check_tag(mark, tag);
    open(mark, NodeKind::list, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    check_tag(mark, tag);
    open(mark, NodeKind::map, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  void refuse(const YAML::Mark& mark, std::string_view what) {
    findings_->add("Y101", mark.line + 1, mark.column + 1, std::string(what));
  }
  // For constructs after which parsing cannot continue.
  [[noreturn]] void abandon(const YAML::Mark& mark, std::string_view what) {
    refuse(mark, what);
    findings_->raise();
    throw InputError(std::string(what));
  }

  void check_tag(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "?" && tag != "!") refuse(mark, "tags are not allowed");
  }

  void scalar(const YAML::Mark& mark, NodeKind kind, const std::string& text,
              YAML::anchor_t anchor) {
    if (anchor != 0) refuse(mark, "anchors are not allowed");
    if (!path_.empty() && path_.back()->kind == NodeKind::map && !has_key_) {
      return begin_entry(mark, kind, text);
    }
    Node& node = next(mark, kind);
    node.text = text;
  }

  void begin_entry(const YAML::Mark& mark, NodeKind kind, const std::string& text) {
    if (kind == NodeKind::null) abandon(mark, "a key is missing before the colon");
    if (path_.back()->find(text) != nullptr) {
      findings_->add("Y102", mark.line + 1, mark.column + 1,
                     fmt::format("{}: duplicate key", text));
    }
    key_ = text;
    key_mark_ = mark;
    has_key_ = true;
  }

  void open(const YAML::Mark& mark, NodeKind kind, YAML::anchor_t anchor) {
    if (anchor != 0) refuse(mark, "anchors are not allowed");
    if (path_.size() >= kYamlDepthMax) {
      abandon(mark, fmt::format("nested deeper than {} levels", kYamlDepthMax));
    }
    if (!path_.empty() && path_.back()->kind == NodeKind::map && !has_key_) {
      abandon(mark, "a key must be a word, not a list or a map");
    }
    path_.push_back(&next(mark, kind));
  }

  void close() { path_.pop_back(); }

  // Adds the node of the value that begins here. Nodes on the path are last children, so growing
  // the open list moves none of them.
  Node& next(const YAML::Mark& mark, NodeKind kind) {
    Node& node = path_.empty() ? root : path_.back()->items.emplace_back();
    node.kind = kind;
    // A value that is absent or on a later line is located by its key.
    const YAML::Mark& place = has_key_ && mark.line != key_mark_.line ? key_mark_ : mark;
    node.line = place.line + 1;
    node.column = place.column + 1;
    if (has_key_) node.key = std::move(key_);
    has_key_ = false;
    return node;
  }

  FileFindings* findings_;
  std::vector<Node*> path_;
  std::string key_;
  YAML::Mark key_mark_;
  bool has_key_ = false;
};

void check_characters(std::string_view text, FileFindings& findings) {
  if (text.size() > static_cast<std::size_t>(kYamlBytesMax)) {
    findings.add("Y101", 0, 0,
                 fmt::format("expected at most {} bytes, found {}", kYamlBytesMax, text.size()));
  }
  if (text.starts_with("\xEF\xBB\xBF") || text.starts_with("\xFE\xFF") ||
      text.starts_with("\xFF\xFE")) {
    findings.add("Y101", 1, 1, "expected UTF-8 without a byte-order mark");
  }
  const auto control = std::find_if(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\r' && c != '\t';
  });
  if (control != text.end()) {
    const auto line = std::count(text.begin(), control, '\n') + 1;
    findings.add("Y101", static_cast<std::int32_t>(line), 1,
                 fmt::format("control character {:#04x}", static_cast<unsigned char>(*control)));
  }
  findings.raise();
}

}  // namespace

Node parse_yaml(std::string_view text, FileFindings& findings) {
  check_characters(text, findings);
  TreeBuilder builder(findings);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    parser.HandleNextDocument(builder);
    // Not LoadAll: with yaml-cpp 0.7 a stray "," makes it loop for ever.
    if (parser) findings.add("Y101", 0, 0, "expected one document, found more text after it");
  } catch (const YAML::Exception& error) {
    findings.add("Y100", error.mark.line + 1, error.mark.column + 1, error.msg);
    findings.raise();
  }
  return std::move(builder.root);
}

}  // namespace fpdt
