// The tables of the rules, then the rules, in the order of the header.
//
// To allow something new, change a table here and give the reason in the commit.
#include "rules.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>

#include <fmt/format.h>

#include "functions.h"

namespace fpdt::tidy {
namespace {

constexpr std::size_t kColumns = 100;
constexpr int kFunctionLines = 70;
constexpr std::size_t kFileLines = 500;
// This file is long on purpose: one table of all ops, in one place.
const std::set<std::string, std::less<>> kLongFiles{"lib/fpdt/schedule/op.h"};

// The libraries that each library may include, besides itself.
const std::map<std::string, std::set<std::string>, std::less<>> kLayers{
    {"base", {}},
    {"spec", {"base"}},
    {"trace", {"base"}},
    {"schedule", {"base"}},
    {"io", {"base", "spec", "trace", "schedule"}},
    {"cost", {"base", "spec", "schedule"}},
    {"report", {"base", "spec", "trace", "schedule", "cost"}},
    {"sim", {"base", "spec", "trace", "schedule", "cost"}},
    {"plan", {"base", "spec", "trace", "schedule", "cost", "sim"}},
    {"reference", {"base", "spec"}},
    {"runtime", {"base", "trace", "schedule"}},
    {"cpu", {"base", "trace", "schedule", "runtime"}},
    {"cuda", {"base", "trace", "schedule", "runtime"}},
    {"comm", {"base", "trace", "schedule", "runtime"}},
    {"mpi", {"base", "trace", "schedule", "runtime"}},
    {"nccl", {"base", "trace", "schedule", "runtime", "cuda"}},
    {"train", {"base", "spec", "trace", "schedule", "io", "runtime", "cpu", "comm"}},
    {"flight", {"base", "spec", "trace", "schedule", "io", "runtime"}},
    {"check",
     {"base", "spec", "trace", "schedule", "io", "reference", "runtime", "cpu", "comm", "train"}},
    {"bench", {"base", "spec", "trace", "schedule", "cost", "runtime", "cpu", "comm"}},
};

struct ThirdParty {
  std::string_view header;                // prefix of its path
  std::vector<std::string_view> folders;  // where it may be included
};
const std::vector<ThirdParty> kThirdParties{
    {"yaml-cpp/", {"lib/fpdt/io/"}},
    {"xxhash", {"lib/fpdt/io/"}},
    {"zlib", {"lib/fpdt/io/", "tests/io/"}},
    {"nlohmann/", {"lib/fpdt/io/", "apps/", "tests/"}},
    {"Eigen/", {"runtime/fpdt/cpu/", "tests/cpu/"}},
    {"CLI/", {"apps/"}},
    {"cuda", {"runtime/fpdt/cuda/", "runtime/fpdt/nccl/", "tests/cuda/", "tests/nccl/"}},
    {"cudnn", {"runtime/fpdt/cuda/", "tests/cuda/"}},
    {"cublas", {"runtime/fpdt/cuda/", "tests/cuda/"}},
    {"nvtx3/", {"runtime/fpdt/cuda/"}},
    {"mpi", {"runtime/fpdt/mpi/", "tests/mpi/"}},
    {"nccl", {"runtime/fpdt/nccl/", "tests/nccl/"}},
    {"gtest/", {"tests/"}},
    {"benchmark/", {"tests/"}},
    {"fmt/", {"lib/", "runtime/", "apps/", "tests/"}},
};

struct Banned {
  std::string_view text;
  std::vector<std::string_view> folders;
  std::string_view advice;
  std::string_view extension = "";  // "" for both
};
const std::vector<std::string_view> kProduct{"lib/", "runtime/", "apps/"};
const std::vector<std::string_view> kAll{"lib/", "runtime/", "apps/", "tests/"};
const std::vector<Banned> kBannedCode{
    {"using namespace", kAll, "name what is used", ".h"},
    {"std::cout", {"lib/", "runtime/"}, "return text; only apps print"},
    {"shared_ptr", kProduct, "values, or unique_ptr for an owner"},
    {"rand(", kProduct, "a seeded generator that is passed in"},
    {"system_clock", {"lib/"}, "nothing in lib/ knows the time"},
};
// Banned in all files except those of this folder, which must name them.
const std::vector<Banned> kBannedAnywhere{
    {"TODO", kAll, "do it, or write an issue"},
    {"FIXME", kAll, "fix it, or write an issue"},
    {"NOLINT", kAll, "change the code"},
    // Also the start of its relatives, such as __CUDA_ARCH_LIST__.
    {"__CUDA_ARCH", kAll, "no kernel asks for its architecture: ci compiles for one"},
    {"<thread>", {"lib/"}, "the thread sanitizer does not see lib/"},
    {"<mutex>", {"lib/"}, "the thread sanitizer does not see lib/"},
    {"<atomic>", {"lib/"}, "the thread sanitizer does not see lib/"},
};

bool below(std::string_view path, const std::vector<std::string_view>& folders) {
  return std::any_of(folders.begin(), folders.end(),
                     [&](std::string_view start) { return path.starts_with(start); });
}

// "lib/fpdt/plan/methods/fpdt.cpp" -> "plan"; "" outside the libraries.
std::string library(std::string_view path) {
  for (const std::string_view root : {"lib/fpdt/", "runtime/fpdt/"}) {
    if (!path.starts_with(root)) continue;
    path.remove_prefix(root.size());
    const std::size_t slash = path.find('/');
    return slash == std::string_view::npos ? "" : std::string(path.substr(0, slash));
  }
  return "";
}

// Calls see(path, line number, line) for every line of every C++ file.
template <class F>
void each_line(const Tree& tree, F see) {
  for (const auto& [path, text] : tree) {
    if (!is_cpp(path)) continue;
    int number = 0;
    for (const std::string_view line : lines(text)) see(path, ++number, line);
  }
}

// The file that an #include line names, with its quotes or angles; "" for other lines.
std::string_view included(std::string_view line) {
  constexpr std::string_view start = "#include ";
  return line.starts_with(start) ? line.substr(start.size()) : std::string_view();
}

// The keyword (HEADERS, SOURCES, ...) that lists the file in a CMakeLists.txt of its folder or of a
// folder above, or in the list of kernels that such a file includes; "" if none lists it.
std::string listed_as(const Tree& tree, std::string_view path) {
  for (std::string_view up = folder(path); !up.empty(); up = folder(up)) {
    const auto file = tree.find(std::string(up) + "/CMakeLists.txt");
    if (file == tree.end()) continue;
    std::string list = file->second;
    const auto kernels = tree.find(std::string(up) + "/kernels.cmake");
    if (kernels != tree.end()) list += kernels->second;
    const auto parenthesis = [](char c) { return c == '(' || c == ')'; };
    std::replace_if(list.begin(), list.end(), parenthesis, ' ');
    std::istringstream tokens(list);
    std::string keyword = "listed";
    for (std::string token; tokens >> token;) {
      if (token == path.substr(up.size() + 1)) return keyword;
      if (token == "HEADERS" || token == "SOURCES") keyword = token;
    }
  }
  return "";
}

std::size_t columns(std::string_view line) {
  return static_cast<std::size_t>(std::count_if(line.begin(), line.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

// The words of a documentation page.
std::set<std::string> words(const std::string& text) {
  static const std::regex word("[A-Za-z0-9_]+");
  std::set<std::string> result;
  for (std::sregex_iterator it(text.begin(), text.end(), word), end; it != end; ++it) {
    result.insert(it->str());
  }
  return result;
}

}  // namespace

Breaches layers(const Tree& tree) {
  Breaches result;
  each_line(tree, [&](const std::string& path, int number, std::string_view line) {
    const std::string from = library(path);
    std::string_view name = included(line);
    if (from.empty() || !name.starts_with("\"fpdt/")) return;
    name.remove_prefix(6);
    const std::string to(name.substr(0, name.find('/')));
    const auto row = kLayers.find(from);
    if (row == kLayers.end()) {
      result.push_back(
          fmt::format("{}:{}: layers: give {} a row in the table", path, number, from));
    } else if (from != to && row->second.count(to) == 0) {
      result.push_back(fmt::format("{}:{}: layers: {} must not know {}", path, number, from, to));
    }
  });
  return result;
}

Breaches third_parties(const Tree& tree) {
  Breaches result;
  each_line(tree, [&](const std::string& path, int number, std::string_view line) {
    std::string_view name = included(line);
    if (!name.starts_with('<')) return;
    name.remove_prefix(1);
    for (const ThirdParty& party : kThirdParties) {
      if (!name.starts_with(party.header)) continue;
      const bool public_fmt =
          party.header == "fmt/" && extension(path) == ".h" && !library(path).empty();
      if (below(path, party.folders) && !public_fmt) continue;
      result.push_back(
          fmt::format("{}:{}: third parties: {} is not for this folder or not for headers", path,
                      number, party.header));
    }
  });
  return result;
}

Breaches sizes(const Tree& tree) {
  Breaches result;
  each_line(tree, [&](const std::string& path, int number, std::string_view line) {
    if (columns(line) <= kColumns) return;
    result.push_back(fmt::format("{}:{}: columns: break the line at {}", path, number, kColumns));
  });
  for (const auto& [path, text] : tree) {
    if (!is_cpp(path)) continue;
    const std::size_t count = lines(text).size();
    if (count > kFileLines && kLongFiles.count(path) == 0) {
      result.push_back(fmt::format("{}:1: file length: {} lines; find its two ideas", path, count));
    }
    for (const Function& function : functions(code_only(text))) {
      if (function.lines <= kFunctionLines) continue;
      result.push_back(fmt::format("{}:{}: function length: {} lines; name its steps", path,
                                   function.first_line, function.lines));
    }
  }
  return result;
}

// The linker takes two types of one name for one type, so a program that holds both may run the
// destructor of one for the other. That is why the rule checks the whole tree.
Breaches repeated_types(const Tree& tree) {
  Breaches result;
  std::map<std::string, std::string> places;
  for (const auto& [path, text] : tree) {
    if (!is_cpp(path)) continue;
    for (const Type& type : types(code_only(text))) {
      const std::string place = fmt::format("{}:{}", path, type.line);
      const auto [first, is_new] = places.emplace(type.name, place);
      if (is_new) continue;
      result.push_back(fmt::format("{}: repeated type: {} is at {} already; rename one", place,
                                   type.name, first->second));
    }
  }
  return result;
}

Breaches banned_text(const Tree& tree) {
  Breaches result;
  const auto look = [&](const std::string& path, const std::string& text, const Banned& banned) {
    if (!below(path, banned.folders) || !path.ends_with(banned.extension)) return;
    int number = 0;
    for (const std::string_view line : lines(text)) {
      ++number;
      const std::size_t at = line.find(banned.text);
      if (at == std::string_view::npos) continue;
      // The end of a longer name is a different word.
      if (at > 0 && std::isalnum(static_cast<unsigned char>(line[at - 1])) != 0) continue;
      result.push_back(fmt::format("{}:{}: {}: {}", path, number, banned.text, banned.advice));
    }
  };
  for (const auto& [path, text] : tree) {
    if (!is_cpp(path)) continue;
    const std::string code = code_only(text);
    for (const Banned& banned : kBannedCode) look(path, code, banned);
    if (path.starts_with("tests/tidy/")) continue;
    for (const Banned& banned : kBannedAnywhere) look(path, text, banned);
  }
  return result;
}

Breaches opening_comments(const Tree& tree) {
  Breaches result;
  for (const auto& [path, text] : tree) {
    if (!is_cpp(path) || text.starts_with("// ")) continue;
    result.push_back(fmt::format("{}:1: opening: say in a comment what the file is", path));
  }
  return result;
}

Breaches unlisted_sources(const Tree& tree) {
  Breaches result;
  for (const auto& [path, text] : tree) {
    const bool header = extension(path) == ".h";
    if (!is_cpp(path) || (header && library(path).empty())) continue;
    if (!listed_as(tree, path).empty()) continue;
    result.push_back(fmt::format("{}:1: unlisted: add it to its CMakeLists.txt", path));
  }
  return result;
}

Breaches untested_headers(const Tree& tree) {
  // A test of a header also tests the headers of the same library that it includes.
  std::set<std::string> tested;
  std::vector<std::string> open;
  const auto include = [&](std::string_view line, const std::string& from) {
    const std::string_view name = included(line);
    if (!name.starts_with("\"fpdt/")) return;
    for (const std::string_view root : {"lib/", "runtime/"}) {
      const std::string path = std::string(root) + std::string(name.substr(1, name.size() - 2));
      if (tree.count(path) == 0 || (!from.empty() && library(from) != library(path))) continue;
      if (tested.insert(path).second) open.push_back(path);
    }
  };
  each_line(tree, [&](const std::string& path, int, std::string_view line) {
    if (path.starts_with("tests/")) include(line, "");
  });
  while (!open.empty()) {
    const std::string path = open.back();
    open.pop_back();
    for (const std::string_view line : lines(tree.at(path))) include(line, path);
  }
  Breaches result;
  for (const auto& [path, text] : tree) {
    if (listed_as(tree, path) != "HEADERS" || tested.count(path) != 0) continue;
    result.push_back(fmt::format(
        "{}:1: untested: include it in a test, or list it with the SOURCES if it is internal",
        path));
  }
  return result;
}

namespace {

// What GitHub makes of the headings of a page.
std::set<std::string> anchors(std::string_view text) {
  std::set<std::string> found;
  bool fenced = false;
  for (const std::string_view line : lines(text)) {
    if (line.starts_with("```")) fenced = !fenced;
    const std::size_t begin = line.find_first_not_of('#');
    if (fenced || begin == 0 || begin == std::string_view::npos || line[begin] != ' ') continue;
    std::string anchor;
    for (const char c : line.substr(begin + 1)) {
      const auto letter = static_cast<unsigned char>(c);
      if (std::isalnum(letter) != 0 || c == '_' || c == '-') {
        anchor += static_cast<char>(std::tolower(letter));
      } else if (c == ' ') {
        anchor += '-';
      }
    }
    found.insert(anchor);
  }
  return found;
}

}  // namespace

Breaches broken_links(const Tree& tree) {
  static const std::regex link(R"(\]\(([^)#\s]*)(#[^)]*)?\))");
  Breaches result;
  for (const auto& [path, text] : tree) {
    if (extension(path) != ".md") continue;
    int number = 0;
    bool fenced = false;
    for (const std::string_view view : lines(text)) {
      ++number;
      if (view.starts_with("```")) fenced = !fenced;
      if (fenced) continue;
      const std::string line(view);
      for (std::sregex_iterator it(line.begin(), line.end(), link), end; it != end; ++it) {
        const std::string target = (*it)[1];
        if (target.find(':') != std::string::npos) continue;
        const std::string full = target.empty() ? path
                                                : (std::filesystem::path(folder(path)) / target)
                                                      .lexically_normal()
                                                      .generic_string();
        const auto next = tree.lower_bound(full);
        const bool exists = next != tree.end() && next->first.starts_with(full);
        if (!exists) result.push_back(fmt::format("{}:{}: link: no file {}", path, number, full));
        const std::string heading = (*it)[2].str();
        if (!exists || heading.empty() || extension(full) != ".md") continue;
        if (anchors(next->second).count(heading.substr(1)) == 0) {
          result.push_back(
              fmt::format("{}:{}: link: {} has no heading {}", path, number, full, heading));
        }
      }
    }
  }
  return result;
}

Breaches undocumented_words(const Tree& tree) {
  static const std::regex enumeration(R"(word_list\(([^)]*)\))");
  static const std::regex names(R"(kTraits\{(\"\w+\"))");
  static const std::regex word("[a-z][a-z0-9_]+");
  const auto page = tree.find("docs/schedule-format.md");
  if (page == tree.end()) return {};
  const std::set<std::string> known = words(page->second);
  Breaches result;
  for (const std::string_view path : {"lib/fpdt/schedule/buffer.h", "lib/fpdt/schedule/op.h"}) {
    const auto file = tree.find(std::string(path));
    if (file == tree.end()) continue;
    // Removes comments, which hold other words. The words are literals, which code_only would
    // blank.
    const std::string code = std::regex_replace(file->second, std::regex("//[^\n]*"), "");
    for (const std::regex& list : {enumeration, names}) {
      for (std::sregex_iterator it(code.begin(), code.end(), list), end; it != end; ++it) {
        const std::string body = (*it)[1];
        for (std::sregex_iterator w(body.begin(), body.end(), word); w != end; ++w) {
          if (known.count(w->str()) != 0) continue;
          result.push_back(
              fmt::format("{}:1: words: docs/schedule-format.md lacks `{}`", path, w->str()));
        }
      }
    }
  }
  return result;
}

Breaches undocumented_codes(const Tree& tree) {
  static const std::regex code("\"([A-Z][0-9]{3})\"");
  std::string pages;
  for (const auto& [path, text] : tree) {
    if (path.starts_with("docs/") && extension(path) == ".md") pages += text;
  }
  std::set<std::string> known = words(pages);
  Breaches result;
  each_line(tree, [&](const std::string& path, int number, std::string_view view) {
    if (library(path).empty()) return;
    const std::string line(view);
    for (std::sregex_iterator it(line.begin(), line.end(), code), end; it != end; ++it) {
      if (!known.insert((*it)[1]).second) continue;
      result.push_back(
          fmt::format("{}:{}: codes: explain {} in docs/", path, number, (*it)[1].str()));
    }
  });
  return result;
}

}  // namespace fpdt::tidy
