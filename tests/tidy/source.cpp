// Reads the tree. A scanner knows just enough C++ to separate code from the rest.
#include "source.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace fpdt::tidy {
namespace {

constexpr std::array<std::string_view, 10> kFolders{
    "apps", "cmake", "configs", "docs", "examples", "lib", "models", "runtime", "tests", "tools"};

bool is_text(const std::string& path) {
  constexpr std::array<std::string_view, 3> extensions{".md", ".txt", ".cmake"};
  return is_cpp(path) ||
         std::find(extensions.begin(), extensions.end(), extension(path)) != extensions.end();
}

// The scanner of code_only: copies code, blanks the rest, keeps every newline.
class Blanker {
 public:
  explicit Blanker(std::string_view text) : text_(text) { result_.reserve(text.size()); }

  std::string run() {
    while (at_ < text_.size()) step();
    return std::move(result_);
  }

 private:
  void step() {
    const char c = text_[at_];
    if (starts("//")) {
      blank_until("\n", 0);
    } else if (starts("/*")) {
      blank_until("*/", 2);
    } else if (starts("R\"") && !in_word()) {
      const std::size_t open = text_.find('(', at_);
      std::string end(1, ')');
      end += text_.substr(at_ + 2, open - at_ - 2);
      end += '"';
      blank_until(end, end.size());
    } else if (c == '"' || (c == '\'' && !in_word())) {
      literal(c);
    } else if (c == '#' && line_is_blank()) {
      directive();
    } else {
      result_ += c;
      ++at_;
    }
  }

  [[nodiscard]] bool starts(std::string_view word) const {
    return text_.substr(at_).starts_with(word);
  }
  // After a letter or digit, R ends a longer name and ' groups digits.
  [[nodiscard]] bool in_word() const {
    return at_ > 0 && std::isalnum(static_cast<unsigned char>(text_[at_ - 1])) != 0;
  }
  [[nodiscard]] bool line_is_blank() const {
    const std::size_t start = result_.rfind('\n') + 1;
    return result_.find_first_not_of(' ', start) == std::string::npos;
  }
  void blank() {
    result_ += text_[at_] == '\n' ? '\n' : ' ';
    ++at_;
  }
  void blank_until(std::string_view end, std::size_t and_then) {
    const std::size_t found = std::min(text_.find(end, at_), text_.size());
    const std::size_t stop = std::min(found + and_then, text_.size());
    while (at_ < stop) blank();
  }
  void literal(char quote) {
    result_ += quote;
    ++at_;
    while (at_ < text_.size() && text_[at_] != quote) {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) blank();
      blank();
    }
    if (at_ < text_.size()) {
      result_ += quote;
      ++at_;
    }
  }
  void directive() {
    while (at_ < text_.size() && text_[at_] != '\n') {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) blank();
      blank();
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string result_;
};

}  // namespace

std::string_view folder(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

std::string_view extension(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(dot);
}

bool is_cpp(std::string_view path) {
  constexpr std::array<std::string_view, 4> extensions{".cpp", ".h", ".cu", ".cuh"};
  return std::find(extensions.begin(), extensions.end(), extension(path)) != extensions.end();
}

Tree read_tree(const std::string& root) {
  namespace fs = std::filesystem;
  Tree tree;
  const auto take = [&](const fs::path& path) {
    const std::string name = fs::relative(path, root).generic_string();
    if (!is_text(name)) {
      tree.emplace(name, "");
      return;
    }
    std::ifstream file(path, std::ios::binary);
    tree.emplace(name, std::string(std::istreambuf_iterator<char>(file), {}));
  };
  for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
    if (entry.is_regular_file()) take(entry.path());
  }
  for (const std::string_view name : kFolders) {
    const fs::path below = fs::path(root) / name;
    if (!fs::exists(below)) continue;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(below)) {
      if (entry.is_regular_file()) take(entry.path());
    }
  }
  return tree;
}

std::vector<std::string_view> lines(std::string_view text) {
  std::vector<std::string_view> result;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    result.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

std::string code_only(std::string_view text) { return Blanker(text).run(); }

}  // namespace fpdt::tidy
