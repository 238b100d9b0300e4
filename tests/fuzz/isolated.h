// Work in a process of its own, since what a fuzzer looks for ends the process.
#pragma once

#include <functional>

namespace fpdt::fuzz {

struct Ending {
  enum class Kind { returned, crashed, hung };
  Kind kind = Kind::returned;
  int code = 0;          // what `work` returned
  double seconds = 0;    // of its processor time
  double mebibytes = 0;  // its peak resident memory
};

// Runs `work` in a fork of this process, which must have no other thread. A process that ends
// otherwise than by returning 0 to 63 crashed; one that takes longer than `seconds` hung.
Ending isolated(const std::function<int()>& work, unsigned seconds);

}  // namespace fpdt::fuzz
