// Reads clusters from configs/clusters/*.yaml, and prints them in the same form.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fpdt/spec/cluster.h"

namespace fpdt {

// InputError with every finding when the file does not describe a cluster. `notes` receives what
// the file leaves out: memory outside the arenas, which is then estimated, and ranges of rates.
ClusterSpec load_cluster(const std::string& path, std::vector<std::string>* notes = nullptr);
ClusterSpec parse_cluster(std::string_view text, std::string_view file_name,
                          std::vector<std::string>* notes = nullptr);

// parse_cluster reads the text back as the same cluster.
std::string print_cluster(const ClusterSpec& cluster);

}  // namespace fpdt
