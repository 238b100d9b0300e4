// Memory of this process as the operating system accounts for it.
#pragma once

#include <string>

#include "fpdt/base/units.h"

namespace fpdt {

struct ProcessMemory {
  Bytes resident;  // VmRSS
  Bytes locked;    // VmLck: pages locked by mlock
  Bytes pinned;    // VmPin: pages pinned by drivers that report it; NVIDIA's may not
};

// Fields that the system does not report are zero.
ProcessMemory process_memory(const std::string& status = "/proc/self/status");

}  // namespace fpdt
