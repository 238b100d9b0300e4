// The machine: how many devices, what each holds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fpdt/base/error.h"
#include "fpdt/base/units.h"

namespace fpdt {

struct ClusterSpec {
  std::string name;
  std::int64_t nodes = 1;
  std::int64_t devices_per_node = 1;
  Bytes device_memory;  // of one device
  Bytes host_memory;    // of one node
  std::int64_t row_multiple =
      1;  // rows of a chunk after the all-to-all (cuDNN attention: 128; CPU: 1)
  std::string source;
  bool operator==(const ClusterSpec&) const = default;

  [[nodiscard]] std::int64_t devices() const { return nodes * devices_per_node; }
};

std::vector<Diagnostic> check(const ClusterSpec& cluster);

}  // namespace fpdt
