// What the two command lines share: flags that take exactly what was typed, and usage errors.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include <CLI/CLI.hpp>

namespace fpdt {

// The longest that a count may be: what a 64-bit integer holds.
inline constexpr std::int64_t kCountMax = std::numeric_limits<std::int64_t>::max();

// A decimal integer in a range. CLI11 alone takes -1 for an unsigned flag as 2^64 - 1, and what is
// over the range of a type as the type's largest.
CLI::Validator integer_in(std::int64_t least, std::int64_t most = kCountMax);

// A finite number over 0, or at least 0.
CLI::Validator positive_number();
CLI::Validator number_from_zero();

// Takes the words of a command line; refuses, for every flag and file, a value that is empty or is
// itself a flag: a variable of the shell that is not set leaves one of them. Returns the exit code
// when help or an error has been printed and there is nothing to run.
std::optional<int> parse(CLI::App& app, int count, const char* const* words);

}  // namespace fpdt
