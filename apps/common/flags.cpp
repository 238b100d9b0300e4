// Verbs and flags by CLI11, with conversions that know no locale, octal numbers or silent limits.
#include "common/flags.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/error.h"
#include "fpdt/base/suggest.h"

#include "common/manual.h"

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

// Names unknown words; false if there are none. CLI11 would name a missing command or flag first,
// of which an unknown one is often the misspelling.
bool report_unknown(const CLI::App& app) {
  bool found = false;
  const std::vector<std::string> first = app.remaining();
  if (app.get_subcommands().empty() && !first.empty() && !first.front().starts_with("-")) {
    std::vector<std::string_view> known;
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
      known.push_back(command->get_name());
    }
    const std::string nearest = nearest_word(first.front(), known);
    say(fmt::format("{}: no such command{}\n", first.front(),
                    nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest)));
    found = true;
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
      found = true;
    }
  }
  return found;
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

// Says that a flag has no value, or several; false if the error is another. CLI11 would count
// values and name their types: "--data: 1 required TEXT missing".
bool report_count(const CLI::ParseError& error) {
  if (error.get_name() != "ArgumentMismatch") return false;
  const std::string_view text = error.what();
  say(fmt::format("{} {}\n", text.substr(0, text.find(':')),
                  text.ends_with(" missing") ? "needs a value" : "may be given only once"));
  return true;
}

// Prints what the parser has to say, help or an error, and returns the exit code.
int answer(const CLI::App& app, const CLI::ParseError& error) {
  // Every process of a job has the same wrong flag, and has not met the others yet.
  if (error.get_exit_code() != 0 && !speaks_for_job()) {
    // The launcher kills a job at the first process that fails, so the one that speaks goes first.
    constexpr std::chrono::seconds kUntilSaid{1};
    std::this_thread::sleep_for(kUntilSaid);
    return static_cast<int>(ExitCode::bad_input);
  }
  if (error.get_exit_code() != 0 && (report_unknown(app) || report_count(error))) {
    say("Run with --help for more information.\n");
    return static_cast<int>(ExitCode::bad_input);
  }
  std::ostringstream help, wrong;
  const bool asked = app.exit(error, help, wrong) == 0;
  say(wrong.str());
  if (!asked) return static_cast<int>(ExitCode::bad_input);
  print_result(help.str());
  return static_cast<int>(ExitCode::done);
}

// The words as CLI11 must see them: it takes the next word for the value of "--name=".
std::vector<std::string> split_empty_values(std::span<char* const> words) {
  std::vector<std::string> given;
  for (const std::string_view word : words) {
    given.emplace_back(word);
    if (!word.starts_with("--") || word.find('=') != word.size() - 1) continue;
    given.back().pop_back();
    given.emplace_back();
  }
  return given;
}

// Descriptions of flags on lines that end with the terminal's.
class WrappedHelp : public CLI::Formatter {
 public:
  std::string make_option_desc(const CLI::Option* option) const override {
    const std::size_t columns = output_columns() - get_column_width();
    std::string rest = CLI::Formatter::make_option_desc(option), text;
    while (rest.size() > columns) {
      const std::size_t space = rest.rfind(' ', columns);
      if (space == std::string::npos || space == 0) break;
      text += rest.substr(0, space) + '\n';
      rest.erase(0, space + 1);
    }
    return text + rest;
  }
};

// The exit code when help or an error has been printed and there is nothing to run.
std::optional<int> parse(CLI::App& app, std::span<char* const> words) {
  const std::vector<std::string> given = split_empty_values(words);
  std::vector<const char*> pointers;
  for (const std::string& word : given) pointers.push_back(word.c_str());
  try {
    app.parse(static_cast<int>(pointers.size()), pointers.data());
  } catch (const CLI::ParseError& error) {
    return answer(app, error);
  }
  return {};
}

int run(CLI::App& app, std::span<const Verb> verbs, std::span<char* const> words) {
  app.set_version_flag("--version",
                       fmt::format("{} {}, {}", app.get_name(), FPDT_VERSION, FPDT_BUILT));
  const auto add_text = [&app](const std::string& flag, std::string (*text)(const CLI::App&),
                               const std::string& help) {
    app.add_flag_callback(
        flag, [&app, text] { throw CLI::CallForVersion(text(app), 0); }, help);
  };
  add_text("--man", manual_page, "Print the manual page, for man -l -");
  add_text("--completion", bash_completion, "Print what bash completes, for source <(...)");
  app.require_subcommand(1);
  std::vector<std::pair<const CLI::App*, Command>> commands;
  for (const Verb& verb : verbs) {
    CLI::App& parser = *app.add_subcommand(verb.name, verb.help);
    Options options(parser);
    commands.emplace_back(&parser, verb.declare(options));
    require_values(parser);
  }
  if (const std::optional<int> code = parse(app, words)) return *code;
  for (const auto& [parser, command] : commands) {
    if (parser->parsed()) return command();
  }
  FPDT_ASSERT(false);
  return 0;
}

}  // namespace

Option& Option::required(bool is_required) {
  option_->required(is_required);
  return *this;
}

Option& Option::shows_default() {
  option_->capture_default_str();
  return *this;
}

Option& Option::integer(std::int64_t least, std::int64_t most) {
  const std::string range =
      most == kCountMax ? fmt::format("at least {}", least) : fmt::format("{} to {}", least, most);
  option_->check(CLI::Validator(
      [=](std::string& text) {
        std::int64_t value = 0;
        if (converts(text, value) && value >= least && value <= most) return std::string();
        return fmt::format("expected an integer, {}, found \"{}\"", range, text);
      },
      ""));
  return *this;
}

Option& Option::positive() {
  option_->check(number(0, false, "a finite number greater than 0"));
  return *this;
}

Option& Option::from_zero() {
  option_->check(number(0, true, "a finite number of at least 0"));
  return *this;
}

Option& Option::one_of(const std::vector<std::string>& words) {
  option_->check(CLI::Validator(
      [words](std::string& text) {
        if (std::find(words.begin(), words.end(), text) != words.end()) return std::string();
        const std::string nearest =
            nearest_word(text, std::vector<std::string_view>(words.begin(), words.end()));
        return fmt::format("expected one of {}, found \"{}\"{}", fmt::join(words, ", "), text,
                           nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest));
      },
      fmt::format("{{{}}}", fmt::join(words, ","))));
  return *this;
}

Option& Option::separated() {
  option_->delimiter(',');
  return *this;
}

Option& Option::excludes(const Option& other) {
  option_->excludes(other.option_);
  return *this;
}

Option& Option::under(const std::string& heading) {
  option_->group(heading);
  return *this;
}

Option Options::flag(const std::string& name, bool& value, const std::string& help) {
  return Option(verb_->add_flag(name, value, help));
}

template <class T>
Option Options::value(const std::string& name, T& value, const std::string& help) {
  return Option(verb_->add_option(name, value, help));
}
template Option Options::value(const std::string&, std::string&, const std::string&);
template Option Options::value(const std::string&, std::vector<std::string>&, const std::string&);
template Option Options::value(const std::string&, double&, const std::string&);
template Option Options::value(const std::string&, std::int32_t&, const std::string&);
template Option Options::value(const std::string&, std::int64_t&, const std::string&);
template Option Options::value(const std::string&, std::uint64_t&, const std::string&);
template Option Options::value(const std::string&, std::optional<double>&, const std::string&);
template Option Options::value(const std::string&, std::optional<std::int32_t>&,
                               const std::string&);
template Option Options::value(const std::string&, std::optional<std::int64_t>&,
                               const std::string&);

std::vector<std::pair<std::string, std::string>> Options::given() const {
  std::vector<std::pair<std::string, std::string>> all;
  for (const CLI::Option* option : std::as_const(*verb_).get_options()) {
    if (option->count() == 0) continue;
    all.emplace_back(option->get_name(), fmt::format("{}", fmt::join(option->results(), ",")));
  }
  return all;
}

Bytes parse_size(std::string_view flag, const std::string& text) {
  const std::optional<Bytes> bytes = parse_bytes(text);
  if (!bytes || bytes->value < 1) {
    throw InputError(
        fmt::format("{}: expected a size such as 64MiB or 80GiB, found \"{}\"", flag, text));
  }
  return *bytes;
}

int run_program(const std::string& name, const std::string& help, const std::string& footer,
                std::span<const Verb> verbs, std::span<char* const> words) {
  prepare_process();
  return guarded(name, [&] {
    CLI::App app(help, name);
    app.footer(footer);
    app.formatter(std::make_shared<WrappedHelp>());
    return run(app, verbs, words);
  });
}

}  // namespace fpdt
