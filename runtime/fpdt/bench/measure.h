// Runs a schedule on every rank at once, as training does, and measures how long its ops took.
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
  // Device memory in use by any program, as the driver reports it; null: no device.
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

// The same for the spans that ran while op `beside` was busy without a pause: between its first
// start and its last end. 0 when there are none.
double mean_seconds_beside(const Trace& trace, std::int32_t op, std::int32_t beside);

// Mean seconds from the start of an op to the start of the next in issue order, where both are
// `first` or a later op. 0 when no two follow each other.
double mean_interval(const Trace& trace, std::int32_t first);

}  // namespace fpdt
