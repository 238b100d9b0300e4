// Walks the verbs and flags of a parser.
#include "common/manual.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace fpdt {
namespace {

std::vector<const CLI::App*> verbs_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// Text as man(7) must see it: a '-' would become a hyphen, which cannot be searched for or pasted.
std::string escaped(std::string_view text) {
  std::string result;
  bool at_start = true;
  for (const char c : text) {
    if (at_start && (c == '.' || c == '\'')) result += "\\&";
    if (c == '-') {
      result += "\\-";
    } else if (c == '\\') {
      result += "\\e";
    } else {
      result += c;
    }
    at_start = c == '\n';
  }
  return result;
}

std::string option_entry(const CLI::Option& option) {
  std::string name = option.get_name(option.get_positional(), true);
  for (std::size_t at = 0; (at = name.find(',', at)) != std::string::npos; at += 2) {
    name.insert(at + 1, " ");
  }
  std::string entry = fmt::format(".TP\n\\fB{}\\fR", escaped(name));
  const bool takes_value = option.get_items_expected_max() > 0 && !option.get_positional();
  if (takes_value) entry += fmt::format(" \\fI{}\\fR", escaped(option.get_type_name()));
  if (option.get_required()) entry += " (required)";
  entry += fmt::format("\n{}", escaped(option.get_description()));
  const std::string initial = option.get_default_str();
  return entry + (initial.empty() ? "\n" : fmt::format("; default: {}\n", escaped(initial)));
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

}  // namespace

std::string manual_page(const CLI::App& app) {
  const std::string name = app.get_name();
  std::string page =
      fmt::format(".TH {} 1 \"\" \"fpdt {}\"\n.SH NAME\n{} \\- {}\n", escaped(upper(name)),
                  FPDT_VERSION, escaped(name), escaped(app.get_description()));
  page += fmt::format(".SH SYNOPSIS\n.B {}\n\\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n.SH COMMANDS\n",
                      escaped(name));
  for (const CLI::App* verb : verbs_of(app)) {
    page +=
        fmt::format(".SS {}\n{}\n", escaped(verb->get_name()), escaped(verb->get_description()));
    for (const CLI::Option* option : verb->get_options()) {
      if (option != verb->get_help_ptr()) page += option_entry(*option);
    }
  }
  return page + fmt::format(".SH EXIT STATUS\n{}", escaped(app.get_footer()));
}

std::string bash_completion(const CLI::App& app) {
  std::string verbs, flags;
  for (const CLI::App* verb : verbs_of(app)) {
    verbs += fmt::format("{}{}", verbs.empty() ? "" : " ", verb->get_name());
    std::string names;
    for (const CLI::Option* option : verb->get_options()) {
      for (const std::string& name : option->get_lnames()) names += " --" + name;
    }
    flags += fmt::format("    {}) words='{}' ;;\n", verb->get_name(), names.substr(1));
  }
  constexpr std::string_view kScript = R"(# Completion of @NAME@ for bash.
_@FUNCTION@() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} words='' shelf=''
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W '@VERBS@ --help --version' -- "$word"))
    return
  fi
  case $previous in
    --model) shelf=models ;;
    --cluster | --like | --machine | --declared) shelf=clusters ;;
    --strategy | --with) shelf=strategies ;;
  esac
  if [ -n "$shelf" ]; then
    words=$(fpdt-plan list "$shelf" 2>/dev/null | sed -n '2,$ s/^\([^ ][^ ]*\).*/\1/p')
    COMPREPLY=($(compgen -W "$words" -- "$word") $(compgen -f -- "$word"))
    return
  fi
  [[ $word == -* ]] || return
  case ${COMP_WORDS[1]} in
@FLAGS@  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _@FUNCTION@ @NAME@
)";
  std::string script(kScript);
  std::string function = app.get_name();
  std::replace(function.begin(), function.end(), '-', '_');
  const auto fill = [&](std::string_view key, const std::string& value) {
    for (std::size_t at = 0; (at = script.find(key, at)) != std::string::npos; at += value.size()) {
      script.replace(at, key.size(), value);
    }
  };
  fill("@NAME@", app.get_name());
  fill("@FUNCTION@", function);
  fill("@VERBS@", verbs);
  fill("@FLAGS@", flags);
  return script;
}

}  // namespace fpdt
