// Parses lines such as "VmRSS:      123 kB".
#include "fpdt/runtime/process_memory.h"

#include <fstream>
#include <sstream>

#include "fpdt/base/math.h"

namespace fpdt {

ProcessMemory process_memory(const std::string& status) {
  ProcessMemory memory;
  std::ifstream file(status);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    std::int64_t kibi = 0;
    if (!(words >> key >> kibi)) continue;
    if (key == "VmRSS:") memory.resident = Bytes{mul(kibi, 1024)};
    if (key == "VmLck:") memory.locked = Bytes{mul(kibi, 1024)};
    if (key == "VmPin:") memory.pinned = Bytes{mul(kibi, 1024)};
  }
  return memory;
}

}  // namespace fpdt
