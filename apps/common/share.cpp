// A folder beside the program, or the one that the environment names.
#include "common/share.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fpdt/base/error.h"
#include "fpdt/base/suggest.h"
#include "fpdt/io/model_file.h"

namespace fpdt {
namespace {

namespace fs = std::filesystem;

struct ShelfWords {
  std::string_view folder, one;
};

ShelfWords words_of(Shelf shelf) {
  constexpr std::array<ShelfWords, 3> kWords{
      {{"models", "model"}, {"configs/clusters", "cluster"}, {"configs/strategies", "strategy"}}};
  return kWords[static_cast<std::size_t>(shelf)];
}

fs::path share_folder() {
  const char* const given = std::getenv("FPDT_SHARE");
  if (given != nullptr && *given != '\0') return given;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return (program.parent_path() / FPDT_SHARE_FROM_PROGRAM).lexically_normal();
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& one : lower) one = static_cast<char>(std::tolower(static_cast<unsigned char>(one)));
  return lower;
}

// "8xh100" has the parts 8, x, h and 100.
std::vector<std::string> parts_of(std::string_view word) {
  const auto kind = [](char one) {
    const auto letter = static_cast<unsigned char>(one);
    if (one == 'x') return 'x';
    return std::isdigit(letter) != 0 ? 'd' : std::isalpha(letter) != 0 ? 'a' : '-';
  };
  std::vector<std::string> parts;
  char before = '-';
  for (const char one : word) {
    if (kind(one) != '-' && kind(one) != before) parts.emplace_back();
    if (kind(one) != '-') parts.back() += one;
    before = kind(one);
  }
  return parts;
}

// Letters and digits in parts of the word that the name has too.
std::size_t shared_letters(std::string_view word, std::string_view name) {
  const std::vector<std::string> known = parts_of(name);
  std::size_t shared = 0;
  for (const std::string& part : parts_of(word)) {
    if (std::find(known.begin(), known.end(), part) != known.end()) shared += part.size();
  }
  return shared;
}

// The names that share most of the word's parts, and at least half of its letters.
std::vector<std::string> names_of_parts(std::string_view word,
                                        const std::vector<std::string>& names) {
  std::vector<std::string> near;
  std::size_t most = (shared_letters(word, word) + 1) / 2;
  for (const std::string& name : names) {
    const std::size_t shared = shared_letters(word, name);
    if (shared > most) near.clear();
    if (shared >= most && shared > 0) near.push_back(name);
    most = std::max(most, shared);
  }
  return near;
}

// The names that hold the word, else the one with the fewest other letters, else those of the most
// equal parts; at most six.
std::vector<std::string> nearest_names(const std::string& given,
                                       const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 6;
  const std::string word = lower_case(given);
  std::vector<std::string> near;
  for (const std::string& name : names) {
    if (name.find(word) != std::string::npos) near.push_back(name);
  }
  if (near.empty()) {
    const std::vector<std::string_view> known(names.begin(), names.end());
    if (std::string one = nearest_word(word, known); !one.empty()) near.push_back(std::move(one));
  }
  if (near.empty()) near = names_of_parts(word, names);
  near.resize(std::min(near.size(), kMost));
  return near;
}

// "Qwen/Qwen3-8B", as the hub of Hugging Face names models: not a path that is there in part.
bool names_a_hub(const std::string& value) {
  std::error_code error;
  const std::size_t slash = value.find('/');
  return slash != std::string::npos && slash > 0 && slash + 1 < value.size() &&
         value.find('/', slash + 1) == std::string::npos && value.front() != '.' &&
         value.front() != '~' && !value.ends_with(".yaml") && !value.ends_with(".json") &&
         !fs::exists(value, error) && !fs::exists(value.substr(0, slash), error);
}

// The file of the model that was taken from there, by its source.
std::string find_hub_model(std::string_view flag, const std::string& value) {
  const std::string from = lower_case(fmt::format("Hugging Face {} config.json", value));
  for (const std::string& name : shared_names(Shelf::models)) {
    std::string file = shared_file(Shelf::models, name);
    if (lower_case(load_model(file).source).find(from) != std::string::npos) return file;
  }
  const std::string name = value.substr(value.find('/') + 1);
  throw InputError(fmt::format(
      "{0} {1}: no such file, and no model of fpdt is from there; its config.json will do: "
      "hf download {1} config.json --local-dir {2}, then {0} {2}",
      flag, value, name));
}

}  // namespace

std::string shared_file(Shelf shelf, std::string_view name) {
  return (share_folder() / words_of(shelf).folder / fmt::format("{}.yaml", name)).string();
}

std::vector<std::string> shared_names(Shelf shelf) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator next(share_folder() / words_of(shelf).folder, error), end;
       !error && next != end; next.increment(error)) {
    if (next->path().extension() == ".yaml") names.push_back(next->path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string find_shared(Shelf shelf, std::string_view flag, const std::string& value) {
  std::error_code error;
  if (shelf == Shelf::models && names_a_hub(value)) return find_hub_model(flag, value);
  if (value.find('/') != std::string::npos || fs::exists(value, error)) return value;
  const std::vector<std::string> names = shared_names(shelf);
  if (std::binary_search(names.begin(), names.end(), value)) return shared_file(shelf, value);
  const std::string_view one = words_of(shelf).one;
  if (names.empty()) {
    throw InputError(fmt::format(
        "{} {}: no such file, and {} has no {}; FPDT_SHARE can name the folder of fpdt's files",
        flag, value, share_folder().string(), words_of(shelf).folder));
  }
  const std::vector<std::string> near = nearest_names(value, names);
  const std::string_view other =
      shelf == Shelf::models ? "; of other models, a config.json will do" : "";
  throw InputError(
      fmt::format("{} {}: no such file, and no {} of fpdt has this name; {}", flag, value, one,
                  near.empty() ? fmt::format("fpdt-plan list shows the names{}", other)
                               : fmt::format("did you mean {}?", fmt::join(near, ", "))));
}

}  // namespace fpdt
