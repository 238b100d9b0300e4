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

// The rates that are one number, though machines vary.
std::vector<std::string_view> without_range(const ClusterSpec& cluster) {
  std::vector<std::string_view> names;
  for (const auto& [name, rate] : needed_rates(cluster)) {
    if (rate.typical > 0 && rate.low == rate.high) names.push_back(name);
  }
  return names;
}

// Fills in what the file leaves out, and says so.
void complete(const Node& root, ClusterSpec& cluster, std::vector<std::string>& notes) {
  if (root.find("outside") == nullptr) {
    cluster.outside = estimated_outside(cluster);
    notes.push_back(fmt::format(
        "no `outside`, the memory of driver and libraries on a device: {}",
        cluster.attention == AttentionKernels::own
            ? "taken as none, as on a CPU; for a GPU give 1 to 4 GiB, `attention: cudnn` "
              "and `row_multiple: 128`"
            : fmt::format("{} is an estimate", format_bytes(cluster.outside_bytes()))));
  }
  if (root.find("host_outside") == nullptr) {
    cluster.host_outside = estimated_host_outside(cluster);
    notes.push_back(fmt::format(
        "no `host_outside`, the memory of system and processes on a node: {} is an estimate",
        format_bytes(cluster.host_outside_bytes())));
  }
  const std::vector<std::string_view> exact = without_range(cluster);
  if (exact.empty()) return;
  notes.push_back(
      fmt::format("no range for {}: the range of predicted times leaves their uncertainty out",
                  fmt::join(exact, ", ")));
}

}  // namespace

ClusterSpec load_cluster(const std::string& path, std::vector<std::string>* notes) {
  return parse_cluster(read_file(path, kYamlBytesMax), path, notes);
}

ClusterSpec parse_cluster(std::string_view text, std::string_view file_name,
                          std::vector<std::string>* notes) {
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
  std::vector<std::string> found;
  complete(root, cluster, found);
  findings.append(check(cluster));
  findings.raise();
  if (notes != nullptr) {
    for (const std::string& note : found) notes->push_back(fmt::format("{}: {}", file_name, note));
  }
  return cluster;
}

std::string print_cluster(const ClusterSpec& cluster) {
  YamlPrinter printer;
  describe(cluster, printer);
  return printer.text;
}

}  // namespace fpdt
