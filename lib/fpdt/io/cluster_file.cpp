// A cluster file is the fields of ClusterSpec.
#include "fpdt/io/cluster_file.h"

#include "fpdt/io/description.h"
#include "fpdt/io/file.h"
#include "fpdt/io/yaml.h"

namespace fpdt {

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
  findings.raise();
  findings.append(check(cluster));
  findings.raise();
  return cluster;
}

}  // namespace fpdt
