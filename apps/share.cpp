// A folder beside the program, or the one that the environment names.
#include "share.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fpdt/base/error.h"
#include "fpdt/base/suggest.h"

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

// The names that hold the word, or else the one with the fewest other letters; at most six.
std::vector<std::string> nearest_names(const std::string& word,
                                       const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 6;
  std::vector<std::string> near;
  for (const std::string& name : names) {
    if (near.size() < kMost && name.find(word) != std::string::npos) near.push_back(name);
  }
  if (!near.empty()) return near;
  const std::vector<std::string_view> known(names.begin(), names.end());
  if (std::string one = nearest_word(word, known); !one.empty()) near.push_back(std::move(one));
  return near;
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
  throw InputError(
      fmt::format("{} {}: no such file, and no {} of fpdt has this name; {}", flag, value, one,
                  near.empty() ? "fpdt-plan list shows the names"
                               : fmt::format("did you mean {}?", fmt::join(near, ", "))));
}

}  // namespace fpdt
