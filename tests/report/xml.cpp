// Checks tags with a stack, quoted attributes, and known entities.
#include "xml.h"

#include <array>
#include <set>
#include <vector>

#include <fmt/format.h>

namespace fpdt::test {
namespace {

// Attributes of a tag, after its name.
std::string attribute_error(std::string_view text) {
  std::set<std::string_view> names;
  while (!text.empty()) {
    const std::size_t start = text.find_first_not_of(" \n");
    if (start == std::string_view::npos) return "";
    text.remove_prefix(start);
    const std::size_t equals = text.find("=\"");
    if (equals == std::string_view::npos) return fmt::format("attribute '{}'", text);
    if (!names.insert(text.substr(0, equals)).second) return fmt::format("twice: '{}'", text);
    const std::size_t end = text.find('"', equals + 2);
    if (end == std::string_view::npos) return fmt::format("open quote in '{}'", text);
    if (text.substr(equals, end - equals).find('<') != std::string_view::npos) return "<";
    text.remove_prefix(end + 1);
  }
  return "";
}

std::string entity_error(std::string_view text) {
  constexpr std::array<std::string_view, 4> known{"&amp;", "&lt;", "&gt;", "&quot;"};
  for (std::size_t at = text.find('&'); at != std::string_view::npos; at = text.find('&', at + 1)) {
    bool good = false;
    for (const std::string_view entity : known) {
      good = good || text.substr(at).starts_with(entity);
    }
    if (!good) return fmt::format("entity at '{}'", text.substr(at, 20));
  }
  return "";
}

}  // namespace

std::string xml_error(std::string_view text) {
  const std::string entities = entity_error(text);
  if (!entities.empty()) return entities;
  std::vector<std::string_view> open;
  bool root = false;
  for (std::size_t at = text.find('<'); at != std::string_view::npos; at = text.find('<', at + 1)) {
    const std::size_t end = text.find('>', at);
    if (end == std::string_view::npos) return "a tag without end";
    std::string_view tag = text.substr(at + 1, end - at - 1);
    if (tag.starts_with('/')) {
      if (open.empty() || open.back() != tag.substr(1)) return fmt::format("</{}>", tag);
      open.pop_back();
      continue;
    }
    if (open.empty() && root) return "a second root";
    root = true;
    const bool closed = tag.ends_with('/');
    if (closed) tag.remove_suffix(1);
    const std::string_view name = tag.substr(0, tag.find_first_of(" \n"));
    const std::string attributes = attribute_error(tag.substr(name.size()));
    if (!attributes.empty()) return fmt::format("{}: {}", name, attributes);
    if (!closed) open.push_back(name);
  }
  return open.empty() ? "" : fmt::format("<{}> is open", open.back());
}

}  // namespace fpdt::test
