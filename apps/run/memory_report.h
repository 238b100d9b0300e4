// The accounts of memory after a run, side by side: the bound before placement, the arena, what is
// live, touched and resident.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fpdt/runtime/process_memory.h"
#include "fpdt/train/trainer.h"

#include "common/command.h"
#include "run/driver_memory.h"
#include "run/job.h"

namespace fpdt {

struct MemoryReport {
  std::vector<MemoryUse> spaces;  // empty when no step was taken
  Prediction predicted;           // of one rank
  std::int64_t ranks = 1;         // of this process
  bool solo = false;
  Bytes peak_resident;                // of the process that takes most
  std::vector<DriverMemory> drivers;  // of GPUs, whose arenas are resident at once
  ProcessMemory process;              // while the arenas are there
};

std::string table(const MemoryReport& report);
Json json(const MemoryReport& report);
// {"predicted":{...},"measured":{...}}: peaks of one rank. Predicted: the placed arenas, and the
// bound before placement; measured: bytes that a step changed or the trainer filled, and pages that
// the operating system holds (null of the memory of a GPU).
Json peaks_json(const MemoryReport& report);

// The deviations from the prediction, in words; empty when `agrees`.
std::vector<std::string> deviations(const MemoryReport& report);
// Whether no measurement is over its prediction in whole pages, pages are where the schedule says,
// and the driver agrees.
bool agrees(const MemoryReport& report);

}  // namespace fpdt
