// Runs a schedule on every rank at once, as training does, and says how long its ops took.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "fpdt/bench/sheet.h"
#include "fpdt/runtime/backend.h"
#include "fpdt/runtime/communicator.h"
#include "fpdt/trace/trace.h"

namespace fpdt {

// Who computes: a CPU, or a GPU that all ranks share.
struct BenchMachine {
  // Of each rank; null: a CpuBackend of `threads` threads (0: the rank's part of the cores).
  std::function<std::unique_ptr<Backend>(Communicator&)> make_backend;
  std::int32_t threads = 0;
  std::chrono::milliseconds deadline{300'000};  // of every wait for a peer
  // Of the device's memory, by its driver, with what others use; null: there is none.
  std::function<Bytes()> used_memory;
  Bytes workspace;  // that each rank's backend keeps of it for its kernels
};

struct MeasureOptions {
  std::int32_t rounds = 7;      // steps that are recorded, after one that is not
  double step_seconds = 20e-3;  // of a step, about: it has as many calls as that takes
};

struct Measured {
  std::vector<Trace> traces;  // of all recorded steps, of all ranks
  Bytes used;                 // BenchMachine::used_memory when the last step was over; 0: null
};
Measured measure(const VerifiedSchedule& schedule, const Contents& contents,
                 const BenchMachine& machine, const MeasureOptions& options);

// Mean seconds of the spans of op `op` (an index into Trace::ops).
double mean_seconds(const Trace& trace, std::int32_t op);

// The same, of those that ran while the lane of op `beside` had no pause: from its first begin to
// its last end. 0 when there is none.
double mean_seconds_beside(const Trace& trace, std::int32_t op, std::int32_t beside);

// Mean seconds from the begin of an op of `first` or a later one to the begin of the next in issue
// order, where that is such an op too. 0 when no two follow each other.
double mean_interval(const Trace& trace, std::int32_t first);

}  // namespace fpdt
