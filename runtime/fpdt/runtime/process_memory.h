// Memory of this process as the operating system accounts for it.
#pragma once

#include <string>

#include "fpdt/base/units.h"

namespace fpdt {

struct ProcessMemory {
  Bytes resident;  // VmRSS
  Bytes locked;    // VmLck: by mlock
  Bytes pinned;    // VmPin: by drivers that say so; NVIDIA's need not
};

// Zeros for what the system does not tell.
ProcessMemory process_memory(const std::string& status = "/proc/self/status");

}  // namespace fpdt
