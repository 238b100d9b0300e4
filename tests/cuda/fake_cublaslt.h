// cuBLASLt on the host: what a test may say of its algorithms.
#pragma once

#include <vector>

namespace fpdt::fake {

// An algorithm as the heuristics name it, best first.
struct Algorithm {
  double seconds = 0;  // of a run, on the runtime's own clock
  bool named = true;   // false: the heuristics say that it is not supported
  bool runs = true;    // false: it fails when it is run
};
// Of every product from now on. At first there is one, which takes no time.
void set_algorithms(const std::vector<Algorithm>& algorithms);

// Numbers of the algorithms of all runs since the last call.
std::vector<int> take_runs();

}  // namespace fpdt::fake
