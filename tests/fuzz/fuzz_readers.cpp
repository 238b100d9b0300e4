// Damaged files of every kind that we read. A reader must return a value or throw an InputError,
// within a second and 256 MiB.
//
//   fuzz_readers [--mutants N] [--seed S] [--out DIR]
//
// Prints for each kind how many files were read and refused, and the most seconds and MiB that a
// refusal took. Exits with 1 when a reader crashed, hung, or took more memory; the file is kept in
// DIR. Run it in the source folder: it damages that folder's own files.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/base/error.h"
#include "fpdt/io/cluster_file.h"
#include "fpdt/io/model_file.h"
#include "fpdt/io/safetensors.h"
#include "fpdt/io/schedule_json.h"
#include "fpdt/io/strategy_file.h"
#include "fpdt/schedule/verify.h"

#include "flags.h"
#include "isolated.h"

namespace fpdt::fuzz {
namespace {

constexpr unsigned kSeconds = 20;
constexpr double kMostMebibytes = 256;
// A sanitizer's shadow memory does not count as the reader's.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kCountsMemory = false;
#else
constexpr bool kCountsMemory = true;
#endif

constexpr int kRead = 2;
constexpr int kRefused = 3;

struct Kind {
  std::string_view name;
  std::vector<std::string> files;
  std::function<void(const std::string& path)> read;
};

std::vector<std::string> files_of(const std::string& folder, std::string_view extension) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == extension) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<Kind> kinds() {
  return {
      {"schedule", files_of("tests/golden", ".json"),
       [](const std::string& path) { verified(load_schedule(path)); }},
      {"model", files_of("models", ".yaml"), [](const std::string& path) { load_model(path); }},
      {"config", files_of("tests/fixtures/hf", ".json"),
       [](const std::string& path) {
         std::filesystem::create_directory(path + ".d");
         std::filesystem::copy(path, path + ".d/config.json");
         load_model(path + ".d");
       }},
      {"cluster", files_of("configs/clusters", ".yaml"),
       [](const std::string& path) { load_cluster(path); }},
      {"strategy", files_of("configs/strategies", ".yaml"),
       [](const std::string& path) { load_strategy(path); }},
      {"safetensors", files_of("tests/fixtures/hf", ".safetensors"),
       [](const std::string& path) { SafetensorsFile{path}; }},
  };
}

// A schedule without its hash, because the hash would make every damaged file refused at once.
std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t hash = text.rfind(",\n\"hash\":");
  return hash == std::string::npos ? text : text.substr(0, hash) + "}\n";
}

// Damages bytes but leaves enough of the grammar for the reader to continue.
class Damage {
 public:
  explicit Damage(std::uint64_t seed) : random_(seed) {}

  std::string apply(std::string text, const std::string& other) {
    for (std::size_t i = pick(1, 4); i > 0 && !text.empty(); --i) once(text, other);
    return text;
  }

 private:
  std::size_t pick(std::size_t low, std::size_t high) {
    return std::uniform_int_distribution<std::size_t>(low, high)(random_);
  }

  void once(std::string& text, const std::string& other) {
    static constexpr std::string_view kWords[] = {"[",          "{",
                                                  "]",          "}",
                                                  "\"",         ",",
                                                  ":",          "0,",
                                                  "-1",         "1e999",
                                                  "\n",         "- ",
                                                  "&a ",        "*a ",
                                                  "null",       "true",
                                                  "0x10",       "\\u",
                                                  "#",          "9223372036854775807",
                                                  "~",          "[+1]",
                                                  " +=",        "rows",
                                                  "\xFF\xFE",   "\xEF\xBB\xBF",
                                                  "2147483648", "\t",
                                                  "1e-5"};
    const std::size_t at = pick(0, text.size() - 1);
    const std::size_t length = std::min(pick(1, 64), text.size() - at);
    switch (pick(0, 8)) {
      case 0:
        text[at] = static_cast<char>(pick(0, 255));
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.resize(at);
        break;
      case 3:
        text.insert(at, kWords[pick(0, std::size(kWords) - 1)]);
        break;
      case 4: {  // repeats a piece
        const std::string part = text.substr(at, length);
        const std::size_t times = std::size_t{1} << pick(0, 16);
        std::string many;
        while (many.size() < part.size() * times && many.size() < (4U << 20U)) many += part;
        text.insert(at, many);
        break;
      }
      case 5: {  // repeats a line
        const std::size_t begin = text.rfind('\n', at) + 1;
        const std::string line = text.substr(begin, text.find('\n', at) + 1 - begin);
        std::string many;
        for (std::size_t i = pick(1, 3000); i > 0 && many.size() < (4U << 20U); --i) many += line;
        text.insert(begin, many);
        break;
      }
      case 6:  // inserts a number
        text.insert(at, std::to_string(pick(0, SIZE_MAX)));
        break;
      case 7:
        text.insert(at, other.substr(pick(0, other.size() - 1), length));
        break;
      default:
        text.insert(at, std::string(pick(1, 1U << 20U), text[at]));
    }
  }

  std::mt19937_64 random_;
};

struct Row {
  int read = 0, refused = 0, bad = 0;
  double seconds = 0, mebibytes = 0;  // the most that a refusal took
};

int answer(const Kind& kind, const std::string& path) {
  try {
    kind.read(path);
    return kRead;
  } catch (const InputError&) {
    return kRefused;
  }
}

Row fuzz(const Kind& kind, const Flags& flags, const std::filesystem::path& folder) {
  Row row;
  for (int mutant = 0; mutant < flags.mutants; ++mutant) {
    const std::uint64_t seed = flags.number(mutant);
    const auto i = static_cast<std::size_t>(mutant);
    const std::string& file = kind.files[i % kind.files.size()];
    const std::string& other = kind.files[(i * 7 + 1) % kind.files.size()];
    // A unique name, so that a kept file is not overwritten.
    const std::filesystem::path path =
        folder / (std::string(kind.name) + "-" + std::to_string(seed) +
                  std::filesystem::path(file).extension().string());
    std::ofstream(path, std::ios::binary) << Damage(seed).apply(contents(file), contents(other));
    const Ending ending = isolated([&] { return answer(kind, path.string()); }, kSeconds);
    const bool answered =
        ending.kind == Ending::Kind::returned && (ending.code == kRead || ending.code == kRefused);
    const bool large = kCountsMemory && ending.mebibytes > kMostMebibytes;
    if (answered && ending.code == kRead) ++row.read;
    if (answered && ending.code == kRefused) {
      ++row.refused;
      row.seconds = std::max(row.seconds, ending.seconds);
      row.mebibytes = std::max(row.mebibytes, ending.mebibytes);
    }
    std::filesystem::remove_all(path.string() + ".d");
    if (answered && !large) {
      std::filesystem::remove(path);
      continue;
    }
    ++row.bad;
    std::cout << path << ": "
              << (ending.kind == Ending::Kind::hung ? "hung"
                  : large                           ? "took much memory"
                                                    : "crashed")
              << "\n";
  }
  return row;
}

int run(const Flags& flags) {
  const bool keeps = !flags.out.empty();
  std::string pattern = (std::filesystem::temp_directory_path() / "fuzz_readers-XXXXXX").string();
  const std::filesystem::path folder =
      keeps ? flags.out : std::filesystem::path(mkdtemp(pattern.data()));
  int bad = 0;
  std::printf("%-12s %8s %8s %8s %10s %8s\n", "kind", "read", "refused", "bad", "seconds", "MiB");
  for (const Kind& kind : kinds()) {
    const Row row = fuzz(kind, flags, folder);
    std::printf("%-12s %8d %8d %8d %10.3f %8.1f\n", std::string(kind.name).c_str(), row.read,
                row.refused, row.bad, row.seconds, row.mebibytes);
    bad += row.bad;
  }
  if (!keeps) std::filesystem::remove_all(folder);
  return bad == 0 ? 0 : 1;
}

}  // namespace
}  // namespace fpdt::fuzz

int main(int count, char** arguments) {
  return fpdt::fuzz::run(fpdt::fuzz::parse_flags(count, arguments));
}
