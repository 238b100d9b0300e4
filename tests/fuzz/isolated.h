// Runs work in its own process, because the faults that a fuzzer seeks end the process.
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

// Runs `work` in a fork of this process, which must have no other thread. A process crashed unless
// it ends by returning 0 to 63; it hung if it takes longer than `seconds`.
Ending isolated(const std::function<int()>& work, unsigned seconds);

}  // namespace fpdt::fuzz
