// Reads the tables of the page once, then looks up each path of an object.
#include "json_reference.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "fpdt/io/file.h"

namespace fpdt::test {
namespace {

struct KeyRow {
  std::string path;  // "front[].words"; "*": in place
  std::string type;  // "integer"; "[Outcome](#outcome)": the keys of another table
};
using KeyPage = std::map<std::string, std::vector<KeyRow>, std::less<>>;

KeyPage read_page() {
  KeyPage page;
  std::istringstream text(read_file(FPDT_SOURCE_DIR "/docs/reference/json.md", 1 << 20));
  std::string section;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("#")) section = line.substr(line.find(' ') + 1);
    if (!line.starts_with("| `")) continue;
    const std::size_t path_end = line.find("` | "), type_end = line.find(" | ", path_end + 4);
    page[section].push_back(
        {line.substr(3, path_end - 3), line.substr(path_end + 4, type_end - path_end - 4)});
    EXPECT_FALSE(line.ends_with("| |")) << "a meaning is missing: " << line;
  }
  return page;
}

const KeyPage& page() {
  static const KeyPage read = read_page();
  return read;
}

// KIND, which stands for any name.
bool is_placeholder(std::string_view word) {
  return std::all_of(word.begin(), word.end(),
                     [](unsigned char c) { return std::isupper(c) != 0; });
}

// How much of `path` the pattern matches: its length, or npos.
std::size_t match(std::string_view pattern, std::string_view path) {
  std::size_t at = 0;
  while (!pattern.empty()) {
    const std::size_t name = std::min(pattern.find('.'), pattern.size());
    const std::string_view word = pattern.substr(0, name);
    const bool any = is_placeholder(word);
    const std::size_t end = std::min(path.find('.', at), path.size());
    if (any ? end == at : path.substr(at, end - at) != word) return std::string_view::npos;
    at = end;
    pattern.remove_prefix(std::min(name + 1, pattern.size()));
    if (!pattern.empty()) {
      if (at == path.size()) return std::string_view::npos;
      ++at;
    }
  }
  return at;
}

bool takes(const KeyRow& row, std::string_view type) {
  if (row.type.find(type) != std::string::npos) return true;
  return type == "integer" && row.type.find("number") != std::string::npos;
}

bool documented(std::string_view section, std::string_view path, std::string_view type) {
  const auto found = page().find(section);
  if (found == page().end()) return false;
  return std::any_of(found->second.begin(), found->second.end(), [&](const KeyRow& row) {
    const bool other = row.type.starts_with("[");
    const std::size_t matched = row.path == "*" ? 0 : match(row.path, path);
    if (matched == std::string_view::npos) return false;
    if (other) {
      const std::string_view rest = path.substr(std::min(matched + (matched > 0), path.size()));
      return documented(row.type.substr(1, row.type.find(']') - 1), rest, type);
    }
    if (row.type == "map") return true;
    return matched == path.size() && takes(row, type);
  });
}

void look_up(std::string_view section, const std::string& path, const nlohmann::json& value) {
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) {
      look_up(section, path.empty() ? key : path + "." + key, inner);
    }
  } else if (value.is_array()) {
    for (const nlohmann::json& inner : value) look_up(section, path + "[]", inner);
  } else {
    const std::string_view type = value.is_null()             ? "null"
                                  : value.is_boolean()        ? "`true`"
                                  : value.is_string()         ? "text"
                                  : value.is_number_integer() ? "integer"
                                                              : "number";
    EXPECT_TRUE(documented(section, path, type))
        << "docs/reference/json.md lacks a row under " << section << ": | `" << path << "` | "
        << type << " |";
  }
}

}  // namespace

void expect_documented(std::string_view section, std::string_view output, std::string_view prefix) {
  std::istringstream lines{std::string(output)};
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
    if (object.is_object()) look_up(section, std::string(prefix), object);
  }
}

std::vector<std::string> documented_names() {
  std::vector<std::string> names;
  for (const auto& [section, rows] : page()) {
    for (const KeyRow& row : rows) {
      std::istringstream path(row.path);
      for (std::string name; std::getline(path, name, '.');) {
        if (name.ends_with("[]")) name.resize(name.size() - 2);
        if (name != "*" && !is_placeholder(name)) names.push_back(name);
      }
    }
  }
  return names;
}

}  // namespace fpdt::test
