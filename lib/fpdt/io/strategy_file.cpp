// A strategy file is the fields of Strategy; printing visits the same description as reading.
#include "fpdt/io/strategy_file.h"

#include <fmt/format.h>

#include "fpdt/io/description.h"
#include "fpdt/io/file.h"
#include "fpdt/io/yaml.h"

namespace fpdt {
namespace {

// Block style; the maps of a list and maps of fractions in flow style.
class YamlPrinter {
 public:
  explicit YamlPrinter(std::string indent = "") : indent_(std::move(indent)) {}

  template <class T>
  void optional(std::string_view key, const T& value) {
    if constexpr (kEnumerators < T >> 0) {
      line(key, std::string(word(value)));
    } else {
      line(key, fmt::format("{}", value));
    }
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

  std::string indent_;
};

}  // namespace

Strategy load_strategy(const std::string& path) {
  return parse_strategy(read_file(path, kYamlBytesMax), path);
}

Strategy parse_strategy(std::string_view text, std::string_view file_name) {
  FileFindings findings(file_name);
  const Node root = parse_yaml(text, findings);
  Strategy strategy;
  Fields fields(root, "", findings);
  describe(strategy, fields);
  fields.done();
  findings.raise();
  return strategy;
}

std::string print_strategy(const Strategy& strategy) {
  YamlPrinter printer;
  describe(strategy, printer);
  return printer.text;
}

}  // namespace fpdt
