// Clusters from configs/clusters/*.yaml, and as such files.
#pragma once

#include <string>
#include <string_view>

#include "fpdt/spec/cluster.h"

namespace fpdt {

// InputError with every finding when the file does not describe a cluster.
ClusterSpec load_cluster(const std::string& path);
ClusterSpec parse_cluster(std::string_view text, std::string_view file_name);

// parse_cluster gives the same cluster back.
std::string print_cluster(const ClusterSpec& cluster);

}  // namespace fpdt
