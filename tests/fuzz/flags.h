// The command line of the fuzzers.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string_view>

namespace fpdt::fuzz {

struct Flags {
  int mutants = 1000;
  std::uint64_t seed = 1;
  std::filesystem::path out;  // where mutants with findings are written
  int only = -1;              // run this mutant of fuzz_schedules alone

  // The seed of a mutant.
  [[nodiscard]] std::uint64_t number(int mutant) const {
    return seed * 1000003 + static_cast<std::uint64_t>(mutant);
  }
};

inline Flags parse_flags(int count, char** arguments) {
  Flags flags;
  const std::span<char*> all(arguments, static_cast<std::size_t>(count));
  for (std::size_t i = 1; i + 1 < all.size(); i += 2) {
    const std::string_view flag = all[i];
    if (flag == "--mutants") flags.mutants = std::atoi(all[i + 1]);
    if (flag == "--seed") flags.seed = std::strtoull(all[i + 1], nullptr, 10);
    if (flag == "--out") flags.out = all[i + 1];
    if (flag == "--only") flags.only = std::atoi(all[i + 1]);
  }
  return flags;
}

}  // namespace fpdt::fuzz
