// A brace opens a namespace, a type, a function or an initialiser; the text before it tells which.
// Nothing inside a function is distinguished, so lambdas count with the function that holds them.
#include "functions.h"

#include <algorithm>
#include <regex>
#include <string>

namespace fpdt::tidy {
namespace {

enum class Scope { space, type, function, initialiser };

// "template <class T, class U> struct X" -> " struct X": the words `class` and `struct` of the
// parameters must not count.
std::string without_template(std::string head) {
  const std::size_t start = head.find("template");
  const std::size_t open = start == std::string::npos ? start : head.find('<', start);
  if (open == std::string::npos) return head;
  int depth = 0;
  for (std::size_t i = open; i < head.size(); ++i) {
    depth += head[i] == '<' ? 1 : (head[i] == '>' ? -1 : 0);
    if (depth == 0) return head.substr(0, start) + head.substr(i + 1);
  }
  return head;
}

Scope scope_of(const std::string& text) {
  static const std::regex space(R"(^\s*(inline\s+)?(namespace\b|extern\s+""))");
  static const std::regex type(R"(^\s*(class|struct|union|enum)\b)");
  const std::string head = without_template(text);
  if (std::regex_search(head, space)) return Scope::space;
  if (std::regex_search(head, type)) return Scope::type;
  const auto opened = std::count(head.begin(), head.end(), '(');
  const auto closed = std::count(head.begin(), head.end(), ')');
  if (opened == 0 || opened != closed) return Scope::initialiser;
  const std::size_t last = head.find_last_not_of(" \n");
  // `X() : a_{1}` initialises a member; the body of X() comes later.
  static const std::regex members(R"(\)[^:]*[^:]:[^:])");
  const char end = head[last];
  const bool after_name =
      std::isalnum(static_cast<unsigned char>(end)) != 0 || end == '_' || end == '>';
  if (after_name && std::regex_search(head, members)) return Scope::initialiser;
  return end == '=' || end == ',' ? Scope::initialiser : Scope::function;
}

struct Open {
  Scope scope;
  int line;
  std::string head;  // continues after an initialiser
};

// Calls opened(stack) for every opening brace, with its scope last in the stack, and closed(scope,
// line) for every closing brace.
template <class Opened, class Closed>
void scan(std::string_view code, Opened opened, Closed closed) {
  std::vector<Open> open;
  std::string head;
  int line = 1;
  for (const char c : code) {
    const Scope inside = open.empty() ? Scope::space : open.back().scope;
    const bool declarations = inside == Scope::space || inside == Scope::type;
    if (c == '\n') ++line;
    if (c == '{') {
      const Scope scope = declarations ? scope_of(head) : Scope::initialiser;
      open.push_back({scope, line, head});
      opened(open);
      head.clear();
    } else if (c == '}') {
      if (open.empty()) continue;
      const Open ended = open.back();
      open.pop_back();
      closed(ended, line);
      head = ended.scope == Scope::initialiser ? ended.head + "}" : "";
    } else if (c == ';') {
      head.clear();
    } else if (declarations) {
      head += c == '\n' ? ' ' : c;
      static const std::string_view access[] = {"public:", "private:", "protected:"};
      for (const std::string_view word : access) {
        if (head.ends_with(word)) head.clear();
      }
    }
  }
}

// "struct alignas(8) Span" -> "Span", "inline namespace a::b" -> "a::b"; "" if `head` has no name,
// or if it declares a part or specialisation of something else.
std::string declared(const Open& open) {
  static const std::regex space(R"(^\s*(inline\s+)?namespace\s+([\w:]+)\s*$)");
  static const std::regex type(R"(^\s*(enum\s+class|class|struct|union|enum)\s+)"
                               R"((?:alignas\([^)]*\)\s*)?(\w+)\s*(final\s*)?(:[^:].*)?$)");
  const std::string head = without_template(open.head);
  std::smatch match;
  return std::regex_match(head, match, open.scope == Scope::space ? space : type) ? match[2].str()
                                                                                  : "";
}

}  // namespace

std::vector<Function> functions(std::string_view code) {
  std::vector<Function> result;
  scan(
      code, [](const std::vector<Open>&) {},
      [&](const Open& ended, int line) {
        if (ended.scope != Scope::function) return;
        result.push_back({ended.line, line - ended.line + 1});
      });
  return result;
}

std::vector<Type> types(std::string_view code) {
  std::vector<Type> result;
  const auto opened = [&](const std::vector<Open>& open) {
    if (open.back().scope != Scope::type) return;
    std::string name;
    for (const Open& outer : open) {
      const std::string part = declared(outer);
      if (part.empty() || (&outer != &open.back() && outer.scope != Scope::space)) return;
      name += (name.empty() ? "" : "::") + part;
    }
    result.push_back({name, open.back().line});
  };
  scan(code, opened, [](const Open&, int) {});
  return result;
}

}  // namespace fpdt::tidy
