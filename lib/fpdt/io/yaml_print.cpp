// Prints scalars in the spelling that people would choose, provided that it reads back exactly.
#include "fpdt/io/yaml_print.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace fpdt {
namespace {

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }

// Words that YAML does not read as text.
bool is_reserved(std::string_view text) {
  constexpr std::array<std::string_view, 4> words{"null", "Null", "NULL", "~"};
  return std::find(words.begin(), words.end(), text) != words.end();
}

bool reads_back(std::string_view text, double value) {
  double parsed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
  return error == std::errc{} && end == text.data() + text.size() && parsed == value;
}

}  // namespace

std::string yaml_scalar(bool value) { return value ? "true" : "false"; }

std::string yaml_scalar(std::int64_t value) { return fmt::format("{}", value); }

std::string yaml_scalar(const std::string& text) {
  const bool plain = !text.empty() && is_letter(text.front()) && !is_reserved(text) &&
                     text.back() != ' ' && std::all_of(text.begin(), text.end(), [](char c) {
                       return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                              std::string_view(" -_./();,+").find(c) != std::string_view::npos;
                     });
  if (plain) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

std::string yaml_scalar(Bytes bytes) {
  constexpr std::array<std::string_view, 5> units{"B", "KiB", "MiB", "GiB", "TiB"};
  std::int64_t value = bytes.value;
  std::size_t unit = 0;
  while (value != 0 && value % 1024 == 0 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{}{}", value, units[unit]);
}

std::string yaml_scalar(double value) {
  const std::string plain = fmt::format("{}", value);
  const double size = std::abs(value);
  if (size == 0 || (size >= 1e-2 && size < 1e5)) return plain;
  const int exponent = static_cast<int>(std::floor(std::log10(size) / 3)) * 3;
  // Rounding the mantissa to 12 digits hides the rounding error of the division.
  const std::string text = fmt::format("{:.12g}e{}", value / std::pow(10.0, exponent), exponent);
  return reads_back(text, value) ? text : plain;
}

std::string yaml_scalar(const Rate& rate) {
  if (rate.low == rate.typical && rate.high == rate.typical) return yaml_scalar(rate.typical);
  return fmt::format("{{typical: {}, low: {}, high: {}}}", yaml_scalar(rate.typical),
                     yaml_scalar(rate.low), yaml_scalar(rate.high));
}

std::string yaml_scalar(const std::vector<double>& values) {
  std::vector<std::string> texts;
  for (const double value : values) texts.push_back(yaml_scalar(value));
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

void YamlPrinter::sparse(std::string_view key, const std::vector<SizeShare>& points) {
  if (points.empty()) return;
  std::string map;
  for (const auto& [size, share] : points) {
    map += fmt::format("{}{}: {}", map.empty() ? "" : ", ", size, yaml_scalar(share));
  }
  line(key, fmt::format("{{{}}}", map));
}

void YamlPrinter::sparse(std::string_view key, const std::vector<KindRate>& kinds) {
  if (kinds.empty()) return;
  line(key, "");
  YamlPrinter nested(indent_ + "  ");
  for (const auto& [kind, rate] : kinds) nested.optional(kind, rate);
  text += nested.text;
}

void YamlPrinter::integers(std::string_view key, const std::vector<std::int64_t>& values) {
  const bool one = values.size() == 1;
  line(key, one ? yaml_scalar(values.front()) : fmt::format("[{}]", fmt::join(values, ", ")));
}

void YamlPrinter::indices(std::string_view key, const std::vector<std::int64_t>& values,
                          const std::vector<std::string>& names, bool required) {
  if (values.empty() && !required) return;
  std::vector<std::string_view> words;
  for (const std::int64_t value : values) words.push_back(names[static_cast<std::size_t>(value)]);
  line(key, fmt::format("[{}]", fmt::join(words, ", ")));
}

void YamlPrinter::fractions(std::string_view key, std::span<const double> values,
                            std::span<const std::string_view> names, double usual) {
  std::string map;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (values[i] == usual) continue;
    const std::string value = values[i] == 0   ? "host"
                              : values[i] == 1 ? "device"
                                               : yaml_scalar(values[i]);
    map += fmt::format("{}{}: {}", map.empty() ? "" : ", ", names[i], value);
  }
  line(key, fmt::format("{{{}}}", map));
}

void YamlPrinter::line(std::string_view key, const std::string& value) {
  text += fmt::format("{}{}:{}{}\n", indent_, key, value.empty() ? "" : " ", value);
}

}  // namespace fpdt
