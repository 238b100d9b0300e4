// cuBLASLt on the host, with algorithms that a test defines.
#pragma once

#include <vector>

namespace fpdt::fake {

// An algorithm in the heuristics' answer, best first.
struct Algorithm {
  double seconds = 0;  // of a run, on the runtime's own clock
  bool named = true;   // false: the heuristics call it unsupported
  bool runs = true;    // false: it fails when it is run
};
// Sets the algorithms of every product from now on. Initially there is one, which takes no time.
void set_algorithms(const std::vector<Algorithm>& algorithms);

// The numbers of the algorithms that ran since the last call.
std::vector<int> take_runs();

}  // namespace fpdt::fake
