// A strategy file has the keys of the table of choices; printing and reading visit it.
#include "fpdt/io/strategy_file.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "fpdt/io/description.h"
#include "fpdt/io/file.h"
#include "fpdt/io/yaml.h"
#include "fpdt/io/yaml_print.h"

namespace fpdt {
Strategy load_strategy(const std::string& path) {
  return parse_strategy(read_file(path, kYamlBytesMax), path);
}

Strategy parse_strategy(std::string_view text, std::string_view file_name, Choices table) {
  FileFindings findings(file_name);
  const Node root = parse_yaml(text, findings);
  Strategy strategy;
  Fields fields(root, "", findings);
  describe_choices(strategy, table, fields);
  fields.done();
  findings.raise();
  return strategy;
}

std::string place_of_key(const std::string& path, std::string_view key) {
  FileFindings findings(path);
  const Node root = parse_yaml(read_file(path, kYamlBytesMax), findings);
  const Node* node = &root;
  while (!key.empty() && node != nullptr) {
    const std::size_t end = std::min(key.find_first_of(".[]"), key.size());
    const std::string_view word = key.substr(0, end);
    if (node->kind == NodeKind::list) {
      std::size_t index = 0;
      std::from_chars(word.data(), word.data() + word.size(), index);
      node = index < node->items.size() ? &node->items[index] : nullptr;
    } else {
      node = node->find(word);
    }
    key.remove_prefix(std::min(key.find_first_not_of(".[]", end), key.size()));
  }
  return node == nullptr ? path : fmt::format("{}:{}:{}", path, node->line, node->column);
}

std::string print_strategy(Strategy strategy, Choices table) {
  YamlPrinter printer;
  describe_choices(strategy, table, printer);
  return printer.text;
}

}  // namespace fpdt
