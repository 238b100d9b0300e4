// A cluster file has the fields of ClusterSpec.
#include "fpdt/io/cluster_file.h"

#include <algorithm>

#include <fmt/format.h>

#include "fpdt/io/description.h"
#include "fpdt/io/file.h"
#include "fpdt/io/yaml.h"
#include "fpdt/io/yaml_print.h"
#include "fpdt/schedule/op.h"

namespace fpdt {
namespace {

// `spec` does not know the ops, so their names are checked here.
void check_kinds(const Node& root, const ClusterSpec& cluster, FileFindings& findings) {
  for (const KindRate& one : cluster.rates.kinds) {
    if (std::find(kBodyNames.begin(), kBodyNames.end(), one.kind) != kBodyNames.end()) continue;
    const std::string nearest = nearest_word(one.kind, kBodyNames);
    findings.add(
        "Y103", *root.find("rates")->find("kinds")->find(one.kind),
        fmt::format("rates.kinds.{}: no op is of this kind{}", one.kind,
                    nearest.empty() ? "" : fmt::format("; did you mean \"{}\"?", nearest)));
  }
}

}  // namespace

ClusterSpec load_cluster(const std::string& path) {
  return parse_cluster(read_file(path, kYamlBytesMax), path);
}

ClusterSpec parse_cluster(std::string_view text, std::string_view file_name) {
  FileFindings findings(file_name);
  const Node root = parse_yaml(text, findings);
  ClusterSpec cluster;
  Fields fields(root, "", findings);
  describe(cluster, fields);
  fields.done();
  check_kinds(root, cluster, findings);
  findings.raise();
  findings.append(check(cluster));
  findings.raise();
  return cluster;
}

std::string print_cluster(const ClusterSpec& cluster) {
  YamlPrinter printer;
  describe(cluster, printer);
  return printer.text;
}

}  // namespace fpdt
