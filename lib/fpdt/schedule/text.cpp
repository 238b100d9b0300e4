// Canonical texts of the file format and their parsers.
#include "fpdt/schedule/text.h"

#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "fpdt/schedule/schedule.h"

namespace fpdt {
namespace {

// Reads a text from the left. Every `take` consumes what it recognises, else nothing.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  [[nodiscard]] bool done() const { return text_.empty(); }
  [[nodiscard]] bool at(char c) const { return !text_.empty() && text_.front() == c; }
  [[nodiscard]] bool at_digit() const {
    return !text_.empty() && text_.front() >= '0' && text_.front() <= '9';
  }
  bool take(std::string_view word) {
    if (text_.substr(0, word.size()) != word) return false;
    text_.remove_prefix(word.size());
    return true;
  }
  // Digits without a sign or leading zeros.
  std::optional<std::int64_t> take_number() {
    if (!at_digit()) return std::nullopt;
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    const auto digits = static_cast<std::size_t>(end - text_.data());
    if (error != std::errc{} || (digits > 1 && text_.front() == '0')) return std::nullopt;
    text_.remove_prefix(digits);
    return value;
  }

 private:
  std::string_view text_;
};

void append_term(std::string& text, std::int64_t coefficient, std::string_view word) {
  if (coefficient == 0) return;
  if (coefficient > 0 && !text.empty()) text += '+';
  if (coefficient == -1) {
    text += '-';
  } else if (coefficient != 1) {
    text += fmt::format("{}*", coefficient);
  }
  text += word;
}

void append_constant(std::string& text, std::int64_t value) {
  if (value == 0 && !text.empty()) return;
  if (text.empty() && value < 0) text += '0';  // "-1" alone would be a relative version
  text += text.empty() ? fmt::format("{}", value) : fmt::format("{:+}", value);
}

// The coefficient of a named term.
std::int64_t* take_argument(Reader& reader, Version& version) {
  for (const Argument& argument : kArguments) {
    if (reader.take(argument.name)) return &(version.*argument.coefficient);
  }
  return nullptr;
}

// One signed term of an absolute version.
bool take_term(Reader& reader, Version& version, bool negative) {
  const std::int64_t sign = negative ? -1 : 1;
  if (!reader.at_digit()) {
    std::int64_t* argument = take_argument(reader, version);
    if (argument == nullptr || *argument != 0) return false;
    *argument = sign;
    return true;
  }
  const auto number = reader.take_number();
  if (!number) return false;
  if (!reader.take("*")) {
    if (version.offset != 0) return false;
    version.offset = sign * *number;
    return true;
  }
  std::int64_t* argument = take_argument(reader, version);
  if (argument == nullptr || *argument != 0) return false;
  *argument = sign * *number;
  return true;
}

std::optional<Version> parse_relative(std::string_view text) {
  Reader reader(text);
  const bool negative = reader.take("-");
  if (!negative && !reader.take("+")) return std::nullopt;
  const auto number = reader.take_number();
  if (!number || !reader.done()) return std::nullopt;
  return Version::plus(negative ? -*number : *number);
}

}  // namespace

std::string version_text(const Version& version) {
  if (version.relative) return fmt::format("{:+}", version.offset);
  std::string text;
  for (const Argument& argument : kArguments) {
    append_term(text, version.*argument.coefficient, argument.name);
  }
  append_constant(text, version.offset);
  return text;
}

std::optional<Version> parse_version(std::string_view text) {
  if (auto relative = parse_relative(text)) return relative;
  Reader reader(text);
  Version version = Version::at(0);
  for (bool first = true; first || !reader.done(); first = false) {
    const bool negative = reader.take("-");
    if (!negative && !first && !reader.take("+")) return std::nullopt;
    if (!take_term(reader, version, negative)) return std::nullopt;
  }
  return version;
}

std::string operand_text(std::string_view buffer, const Operand& operand, bool accumulate) {
  std::string text = fmt::format("{}[{}]", buffer, version_text(operand.version));
  if (operand.rows >= 0) {
    text += fmt::format(" rows {}:{}", operand.row_first, operand.row_first + operand.rows);
  } else if (operand.row_first != 0) {
    text += fmt::format(" rows {}:", operand.row_first);
  }
  if (accumulate) text += " +=";
  return text;
}

std::optional<OperandText> parse_operand(std::string_view text) {
  const std::size_t open = text.find('[');
  const std::size_t close = text.find(']');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) {
    return std::nullopt;
  }
  OperandText operand;
  operand.buffer = text.substr(0, open);
  const auto version = parse_version(text.substr(open + 1, close - open - 1));
  if (!is_name(operand.buffer) || !version) return std::nullopt;
  operand.version = *version;
  Reader reader(text.substr(close + 1));
  if (reader.take(" rows ")) {
    const auto first = reader.take_number();
    if (!first || !reader.take(":")) return std::nullopt;
    operand.row_first = *first;
    if (reader.at_digit()) {
      const auto end = reader.take_number();
      if (!end || *end < *first) return std::nullopt;
      operand.rows = *end - *first;
    }
  }
  operand.accumulate = reader.take(" +=");
  if (!reader.done()) return std::nullopt;
  return operand;
}

namespace {

std::string inner_text(const RankTerm& term) {
  const auto& [b, s, m, n] = term;
  std::string inner = s == 0 ? "r" : fmt::format("(r+{})", s);
  if (m != 1) inner += fmt::format(" div {}", m);
  if (n < kNoModulus) inner += fmt::format(" mod {}", n);
  return m != 1 || n < kNoModulus ? fmt::format("({})", inner) : inner;
}

}  // namespace

std::string rank_expression_text(const RankExpression& expression) {
  std::string text;
  if (expression.a != 0) text = fmt::format("{}", expression.a);
  for (const RankTerm& term : {expression.first, expression.second}) {
    if (!is_constant(term)) append_term(text, term.b, inner_text(term));
  }
  return text.empty() ? "0" : text;
}

namespace {

// "r", "(r+1)", "(r mod 4)", "((r+1) div 2 mod 4)".
bool take_inner(Reader& reader, RankTerm& term) {
  term.n = kNoModulus;
  if (reader.take("r")) return true;
  const auto take_sum = [&] {
    if (!reader.take("(r+")) return false;
    const auto s = reader.take_number();
    if (!s || !reader.take(")")) return false;
    term.s = *s;
    return true;
  };
  if (!reader.take("(")) return false;
  if (reader.take("r+")) {
    const auto s = reader.take_number();
    term.s = s.value_or(0);
    return s && reader.take(")");
  }
  if (!reader.take("r") && !take_sum()) return false;
  if (reader.take(" div ")) {
    const auto m = reader.take_number();
    if (!m || *m == 0) return false;
    term.m = *m;
  }
  if (reader.take(" mod ")) {
    const auto n = reader.take_number();
    if (!n || *n == 0) return false;
    term.n = *n;
  }
  return reader.take(")");
}

// "8*r", "-r"; "+" stands before every term but the first of the text.
bool take_rank_term(Reader& reader, RankTerm& term, bool first) {
  const bool negative = reader.take("-");
  if (!negative && !first && !reader.take("+")) return false;
  const auto number = reader.at_digit() ? reader.take_number() : std::nullopt;
  if (number && !reader.take("*")) return false;
  term.b = (negative ? -1 : 1) * number.value_or(1);
  return take_inner(reader, term);
}

}  // namespace

std::optional<RankExpression> parse_rank_expression(std::string_view text) {
  RankExpression expression;
  Reader reader(text);
  Reader after(text);  // behind the constant, if there is one
  const bool negative = after.take("-");
  const auto constant = after.at_digit() ? after.take_number() : std::nullopt;
  const bool leads = constant && !after.at('*');
  if (leads) {
    expression.a = negative ? -*constant : *constant;
    reader = after;
    if (reader.done()) return expression;
  }
  if (!take_rank_term(reader, expression.first, !leads)) return std::nullopt;
  if (!reader.done() && !take_rank_term(reader, expression.second, false)) return std::nullopt;
  return reader.done() ? std::optional(expression) : std::nullopt;
}

std::string after_text(const AfterText& after) {
  if (after.calls_back == 0) return std::string(after.op);
  return fmt::format("{}.{}@{}-{}", after.block, after.op, after.of_layer ? "layer" : "",
                     after.calls_back);
}

std::optional<AfterText> parse_after(std::string_view text) {
  AfterText after;
  const std::size_t at = text.find('@');
  if (at == std::string_view::npos) {
    after.op = text;
    return is_name(text) ? std::optional(after) : std::nullopt;
  }
  const std::size_t dot = text.find('.');
  if (dot == std::string_view::npos || dot > at) return std::nullopt;
  after.block = text.substr(0, dot);
  after.op = text.substr(dot + 1, at - dot - 1);
  Reader reader(text.substr(at + 1));
  after.of_layer = reader.take("layer");
  if (!reader.take("-")) return std::nullopt;
  const auto back = reader.take_number();
  if (!back || *back < 1 || *back > INT32_MAX || !reader.done()) return std::nullopt;
  if (after.of_layer && *back > kMostLayerCalls) return std::nullopt;
  after.calls_back = static_cast<std::int32_t>(*back);
  if (!is_name(after.block) || !is_name(after.op)) return std::nullopt;
  return after;
}

std::string call_argument_text(const CallArgument& argument) {
  std::string text;
  append_term(text, argument.step, "n");
  append_constant(text, argument.first);
  return text;
}

std::optional<CallArgument> parse_call_argument(std::string_view text) {
  Reader reader(text);
  const bool negative = reader.take("-");
  const std::int64_t sign = negative ? -1 : 1;
  CallArgument argument;
  const auto number = reader.at_digit() ? reader.take_number() : std::nullopt;
  if (number && !reader.take("*")) {
    argument.first = *number;
    return !negative && reader.done() ? std::optional(argument) : std::nullopt;
  }
  if (!reader.take("n")) return std::nullopt;
  argument.step = sign * number.value_or(1);
  if (reader.done()) return argument;
  const bool minus = reader.take("-");
  if (!minus && !reader.take("+")) return std::nullopt;
  const auto first = reader.take_number();
  if (!first || !reader.done()) return std::nullopt;
  argument.first = minus ? -*first : *first;
  return argument;
}

std::string lane_text(const Lane& lane) {
  return fmt::format("{}.{}", word(lane.kind), lane.index);
}

std::optional<Lane> parse_lane(std::string_view text) {
  const std::size_t dot = text.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const auto kind = parse_word<LaneKind>(text.substr(0, dot));
  Reader reader(text.substr(dot + 1));
  const auto index = reader.take_number();
  if (!kind || !index || *index > INT32_MAX || !reader.done()) return std::nullopt;
  return Lane{*kind, static_cast<std::int32_t>(*index)};
}

bool is_name(std::string_view text) {
  constexpr std::string_view kSigns = "_-/:.";
  for (const char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool digit = c >= '0' && c <= '9';
    if (!letter && !digit && kSigns.find(c) == std::string_view::npos) return false;
  }
  return !text.empty();
}

namespace {

template <std::size_t... Index>
Body body_at(std::size_t wanted, std::index_sequence<Index...>) {
  Body body;
  ((Index == wanted ? static_cast<void>(body.emplace<Index>()) : static_cast<void>(0)), ...);
  return body;
}

}  // namespace

std::optional<Body> body_named(std::string_view name) {
  for (std::size_t i = 0; i < kBodyNames.size(); ++i) {
    if (kBodyNames[i] == name) {
      return body_at(i, std::make_index_sequence<kBodies>());
    }
  }
  return std::nullopt;
}

}  // namespace fpdt
