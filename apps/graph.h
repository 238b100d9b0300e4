// The graph of a schedule file that `draw --graph` asks for.
#pragma once

#include <string>
#include <vector>

#include "fpdt/report/dot.h"

namespace fpdt {

// Draws the middle call of the first block, and of each other block the call that is nearest to it.
// `ops`: "20-60", counted over these calls; empty: all. Needs neither rates nor a problem section:
// what waits for what is in the ops. InputError lists the blocks where none is named.
DependencyGraph load_graph(const std::string& path, const std::vector<std::string>& blocks,
                           const std::string& ops);

}  // namespace fpdt
