// Prints what description.h describes as YAML that people edit and `parse_yaml` reads back.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "fpdt/io/description.h"

namespace fpdt {

std::string yaml_scalar(bool value);
std::string yaml_scalar(std::int64_t value);
// "312e12", "6.5e-6": exponents are multiples of three; reads back as the same double.
std::string yaml_scalar(double value);
// Quoted where YAML could read the text as another type.
std::string yaml_scalar(const std::string& text);
// "80GiB", in the largest unit that leaves no fraction.
std::string yaml_scalar(Bytes bytes);
// One number, or "{typical: 250e12, low: 240e12, high: 260e12}".
std::string yaml_scalar(const Rate& rate);
// "[1, 1.5]"
std::string yaml_scalar(const std::vector<double>& values);

// Prints in block style; maps inside lists and maps of numbers are in flow style.
class YamlPrinter {
 public:
  explicit YamlPrinter(std::string indent = "") : indent_(std::move(indent)) {}

  template <class T>
  void required(std::string_view key, const T& value) {
    optional(key, value);
  }
  template <class T>
  void optional(std::string_view key, const T& value) {
    if constexpr (HasWords<T>) {
      line(key, std::string(fpdt::word(value)));
    } else {
      line(key, yaml_scalar(value));
    }
  }
  template <class T>
  void sparse(std::string_view key, const T& value, const std::type_identity_t<T>& usual = {}) {
    if (value != usual) optional(key, value);
  }
  void sparse(std::string_view key, const std::vector<SizeShare>& points);
  void sparse(std::string_view key, const std::vector<KindRate>& kinds);
  template <class T>
  void sparse_group(std::string_view key, const T& value) {
    if (value == T{}) {
      line(key, "{}");  // a person sees that nothing was forgotten
    } else {
      group(key, value);
    }
  }
  void tokens(std::string_view key, std::int64_t value) { line(key, format_tokens(value)); }
  void integers(std::string_view key, const std::vector<std::int64_t>& values);
  void indices(std::string_view key, const std::vector<std::int64_t>& values,
               const std::vector<std::string>& names, bool required = true);
  [[nodiscard]] static bool has_either(std::string_view /*one*/, std::string_view /*other*/,
                                       bool print) {
    return print;
  }
  void moved(std::string_view /*key*/, std::string_view /*now*/) {}
  void count_or_word(std::string_view key, std::int64_t value, std::string_view zero) {
    line(key, value == 0 ? std::string(zero) : yaml_scalar(value));
  }
  void fractions(std::string_view key, std::span<const double> values,
                 std::span<const std::string_view> names, double usual);
  template <class T>
  void group(std::string_view key, const T& value) {
    line(key, "");
    YamlPrinter nested(indent_ + "  ");
    describe(value, nested);
    text += nested.text;
  }
  void sparse_word(std::string_view key, std::uint8_t value,
                   std::span<const std::string_view> words) {
    if (value != 0) word(key, value, words);
  }
  void word(std::string_view key, std::uint8_t value, std::span<const std::string_view> words) {
    line(key, std::string(words[value]));
  }
  template <class T, class Describe>
  void list(std::string_view key, std::vector<T>& values, const Describe& describe_one) {
    line(key, "");
    for (T& value : values) {
      YamlPrinter nested(indent_ + "    ");
      describe_one(value, nested);
      nested.text[indent_.size() + 2] = '-';
      text += nested.text;
    }
  }

  std::string text;

 private:
  void line(std::string_view key, const std::string& value);

  std::string indent_;
};

}  // namespace fpdt
