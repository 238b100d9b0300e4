// The accounts of memory after a run, side by side: predicted, reserved, live, touched, resident.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fpdt/train/trainer.h"
#include "job.h"

namespace fpdt {

struct MemoryReport {
  std::vector<MemoryUse> spaces;  // empty when no step was taken
  std::optional<PredictedBytes> predicted;
  std::int64_t ranks = 1;
  bool solo = false;
  Bytes peak_resident;  // of the process
};

std::string table(const MemoryReport& report);
std::string json(const MemoryReport& report);

// Whether no measurement is over its prediction, and pages are where the schedule says.
bool agrees(const MemoryReport& report);

}  // namespace fpdt
