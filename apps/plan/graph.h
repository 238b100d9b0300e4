// The graph of a schedule file that `draw --graph` asks for.
#pragma once

#include <string>
#include <string_view>

#include "fpdt/report/dot.h"

namespace fpdt {

// `blocks`: "gather,forward". Draws the middle call of the first, and of each other one the call
// that is nearest to it.
// `ops`: "20-60", counted over these calls; empty: all. Needs neither rates nor a problem section:
// what waits for what is in the ops. InputError lists the blocks where none is named.
DependencyGraph load_graph(const std::string& path, std::string_view blocks,
                           const std::string& ops);

}  // namespace fpdt
