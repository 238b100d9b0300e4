// Prints what description.h describes as YAML that people edit and `parse_yaml` reads back.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

#include "fpdt/io/description.h"

namespace fpdt {

// In quotes where YAML could take the text for something else.
std::string yaml_text(std::string_view text);
// "80GiB": the largest unit that leaves no fraction.
std::string yaml_bytes(Bytes bytes);
// "312e12", "6.5e-6": exponents in steps of three; reads back as the same double.
std::string yaml_number(double value);
// "312e12", or "{typical: 250e12, low: 240e12, high: 260e12}".
std::string yaml_rate(const Rate& rate);

// Block style; the maps of a list and maps of numbers in flow style.
class YamlPrinter {
 public:
  explicit YamlPrinter(std::string indent = "") : indent_(std::move(indent)) {}

  template <class T>
  void required(std::string_view key, const T& value) {
    optional(key, value);
  }
  template <class T>
  void optional(std::string_view key, const T& value) {
    if constexpr (kEnumerators < T >> 0) {
      line(key, std::string(word(value)));
    } else if constexpr (std::is_same_v<T, std::string>) {
      line(key, yaml_text(value));
    } else if constexpr (std::is_same_v<T, Bytes>) {
      line(key, yaml_bytes(value));
    } else {
      line(key, fmt::format("{}", value));
    }
  }
  template <class T>
  void sparse(std::string_view key, const T& value, const std::type_identity_t<T>& usual = {}) {
    if (value != usual) sparse_entry(key, value);
  }
  template <class T>
  void sparse_group(std::string_view key, const T& value) {
    if (value != T{}) group(key, value);
  }
  void tokens(std::string_view key, std::int64_t value) { line(key, format_tokens(value)); }
  void count_or_word(std::string_view key, std::int64_t value, std::string_view zero) {
    line(key, value == 0 ? std::string(zero) : fmt::format("{}", value));
  }
  void fractions(std::string_view key, std::span<const double> values,
                 std::span<const std::string_view> names) {
    std::string map;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (values[i] == 0) continue;
      map += fmt::format("{}{}: {}", map.empty() ? "" : ", ", names[i], values[i]);
    }
    line(key, fmt::format("{{{}}}", map));
  }
  template <class T>
  void group(std::string_view key, const T& value) {
    line(key, "");
    YamlPrinter nested(indent_ + "  ");
    describe(value, nested);
    text += nested.text;
  }
  template <class T>
  void list(std::string_view key, const std::vector<T>& values) {
    line(key, "");
    for (const T& value : values) {
      YamlPrinter nested(indent_ + "    ");
      describe(value, nested);
      nested.text[indent_.size() + 2] = '-';
      text += nested.text;
    }
  }

  std::string text;

 private:
  void line(std::string_view key, const std::string& value) {
    text += fmt::format("{}{}:{}{}\n", indent_, key, value.empty() ? "" : " ", value);
  }
  template <class T>
  void sparse_entry(std::string_view key, const T& value) {
    optional(key, value);
  }
  void sparse_entry(std::string_view key, double value) { line(key, yaml_number(value)); }
  void sparse_entry(std::string_view key, const Rate& rate) { line(key, yaml_rate(rate)); }
  void sparse_entry(std::string_view key, const std::vector<SizeShare>& points);
  void sparse_entry(std::string_view key, const std::vector<KindRate>& kinds);

  std::string indent_;
};

}  // namespace fpdt
