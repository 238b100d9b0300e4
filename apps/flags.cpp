// Conversions without locale, octal numbers or silent limits.
#include "flags.h"

#include <charconv>
#include <cmath>
#include <iostream>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "fpdt/base/error.h"
#include "fpdt/base/suggest.h"

#include "command.h"

namespace fpdt {
namespace {

template <class T>
bool converts(const std::string& text, T& value) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc{} && stop == end;
}

CLI::Validator number(double least, bool least_too, const std::string& expected) {
  return CLI::Validator(
      [=](std::string& text) {
        double value = 0;
        const bool good = converts(text, value) && std::isfinite(value) &&
                          (value > least || (least_too && value == least));
        return good ? std::string() : fmt::format("expected {}, found \"{}\"", expected, text);
      },
      "");
}

// CLI11 names a missing command or flag before an unknown one, which is often its misspelling.
void report_unknown(const CLI::App& app) {
  const std::vector<std::string> first = app.remaining();
  if (app.get_subcommands().empty() && !first.empty() && !first.front().starts_with("-")) {
    std::vector<std::string_view> known;
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
      known.push_back(command->get_name());
    }
    const std::string nearest = nearest_word(first.front(), known);
    say(fmt::format("{}: no such command{}\n", first.front(),
                    nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest)));
  }
  for (const CLI::App* command : app.get_subcommands()) {
    std::vector<std::string> names;
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
    const std::vector<std::string_view> known(names.begin(), names.end());
    for (const std::string& word : command->remaining()) {
      if (!word.starts_with("--")) continue;
      const std::string nearest = nearest_word(word, known);
      say(fmt::format("{}: no such flag{}\n", word,
                      nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest)));
    }
  }
}

// Adds to every option that takes a value that it must have one.
void require_values(CLI::App& command) {
  const CLI::Validator is_value(
      [](std::string& text) {
        if (text.empty()) return std::string("expected a value");
        if (!text.starts_with("--")) return std::string();
        return fmt::format("expected a value, found \"{}\" (a file is named ./{})", text, text);
      },
      "");
  for (CLI::Option* option : command.get_options()) {
    if (option->get_items_expected_max() > 0) option->check(is_value);
  }
}

// Prints what the parser has to say, help or an error, and returns the exit code.
int answer(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() != 0) report_unknown(app);
  if (app.exit(error) != 0) return static_cast<int>(ExitCode::bad_input);
  if (!std::cout.flush()) throw IoError("standard output: the help could not be written");
  return static_cast<int>(ExitCode::done);
}

}  // namespace

CLI::Validator integer_in(std::int64_t least, std::int64_t most) {
  return CLI::Validator(
      [=](std::string& text) {
        std::int64_t value = 0;
        if (converts(text, value) && value >= least && value <= most) return std::string();
        return fmt::format("expected an integer of {}, found \"{}\"",
                           most == kCountMax ? fmt::format("at least {}", least)
                                             : fmt::format("{} to {}", least, most),
                           text);
      },
      "");
}

CLI::Validator positive_number() { return number(0, false, "a finite number over 0"); }

CLI::Validator number_from_zero() { return number(0, true, "a finite number of at least 0"); }

std::optional<int> parse(CLI::App& app, int count, const char* const* words) {
  require_values(app);
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    require_values(*command);
  }
  std::vector<std::string> given;
  for (const std::string_view word : std::span(words, static_cast<std::size_t>(count))) {
    given.emplace_back(word);
    // CLI11 takes the next word for the value of "--name=".
    if (!word.starts_with("--") || word.find('=') != word.size() - 1) continue;
    given.back().pop_back();
    given.emplace_back();
  }
  std::vector<const char*> pointers;
  for (const std::string& word : given) pointers.push_back(word.c_str());
  try {
    app.parse(static_cast<int>(pointers.size()), pointers.data());
  } catch (const CLI::ParseError& error) {
    return answer(app, error);
  }
  return {};
}

}  // namespace fpdt
