// fpdt-run check: two steps of any small schedule against the reference; with --bisect also of
// simpler variants, to find the choice that breaks it.
#pragma once

#include <cstdint>
#include <string>

#include "machine.h"

namespace fpdt {

struct CheckFlags {
  std::string schedule;
  std::string data;  // token file; "": random tokens
  std::string data_format;
  std::int32_t separator = -1;
  std::uint64_t seed = 1;
  double tolerance = 0;  // 0: derived
  bool bisect = false;
  MachineFlags backend;
  bool json = false;
};

// Returns the exit code: 4 when something disagrees.
int run_check(const CheckFlags& flags);

}  // namespace fpdt
