// The command line of a program: its verbs, their flags, and what it says to a wrong one.
//
// CLI11 does the work in flags.cpp alone: each source that includes it takes seven seconds longer.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fpdt/base/units.h"

#include "common/command.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace fpdt {

// The longest that a count may be: what a 64-bit integer holds.
inline constexpr std::int64_t kCountMax = std::numeric_limits<std::int64_t>::max();

// A flag or an argument that was declared. Each call narrows it further.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option& required(bool is_required = true);
  // Its help shows the value that it has before the parse.
  Option& shows_default();
  // A decimal integer in a range. CLI11 alone takes -1 for an unsigned flag as 2^64 - 1, and what
  // is over the range of a type as the type's largest.
  Option& integer(std::int64_t least, std::int64_t most = kCountMax);
  // A finite number over 0, or of at least 0.
  Option& positive();
  Option& from_zero();
  Option& one_of(const std::vector<std::string>& words);
  // Commas separate values, for a vector. Without them, the flag is repeated.
  Option& separated();
  Option& excludes(const Option& other);
  // Its help stands under this heading, after that of other flags.
  Option& under(const std::string& heading);

 private:
  CLI::Option* option_;
};

// Declares the flags of a verb, which fill variables that must outlive the parse.
class Options {
 public:
  explicit Options(CLI::App& verb) : verb_(&verb) {}

  Option flag(const std::string& name, bool& value, const std::string& help);
  // `name`: "--seed", or that of an argument. T: std::string or a vector of them, a double, an
  // integer of 32 or 64 bits, or an optional number.
  template <class T>
  Option value(const std::string& name, T& value, const std::string& help);

  // After the parse: the flags and arguments that were given, by name, with their values as text.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> given() const;

 private:
  CLI::App* verb_;
};

struct Verb {
  std::string name;
  std::string help;
  Command (*declare)(Options& options);  // returns what runs the verb once its flags are parsed
};

// The value of a flag, a size over 0. InputError when it is none.
Bytes parse_size(std::string_view flag, const std::string& text);

// The whole of a program's main: prints help and errors, or runs the verb that was asked for.
// Refuses, for every flag and file, a value that is empty or is itself a flag: a variable of the
// shell that is not set leaves one of them. `footer`: the end of the program's help.
int run_program(const std::string& name, const std::string& help, const std::string& footer,
                std::span<const Verb> verbs, std::span<char* const> words);

}  // namespace fpdt
