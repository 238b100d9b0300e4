// What is near and fits, when the question itself does not: each with its number.
#pragma once

#include <string>
#include <vector>

#include "fpdt/plan/search/search.h"

namespace fpdt {

struct Nearest {
  std::string what;  // "1.5M tokens on the same machine"
  std::string flag;  // "--seq-len 1536K"; empty: no flag can ask for it
};

// A shorter sequence, more devices, more host memory, a larger device budget; those that help.
// `machine`: of which the problem may have a part.
std::vector<Nearest> nearest_fits(const Problem& problem, const Pins& pins,
                                  const ClusterSpec& machine, const OnProgress& progress = {});

// The nearest strategy that needs less of the device and fits, with its bytes; without one, what
// else to do.
std::string nearest_strategy(const Problem& problem, const Strategy& strategy);

}  // namespace fpdt
