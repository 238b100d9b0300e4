// A strategy file has the fields of Strategy; printing visits the same description as reading.
#include "fpdt/io/strategy_file.h"

#include "fpdt/io/description.h"
#include "fpdt/io/file.h"
#include "fpdt/io/yaml.h"
#include "fpdt/io/yaml_print.h"

namespace fpdt {
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
