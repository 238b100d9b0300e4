// Runs a schedule on every rank at once, as training does, and measures how long its ops take.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "fpdt/bench/sheet.h"
#include "fpdt/runtime/backend.h"
#include "fpdt/runtime/communicator.h"
#include "fpdt/runtime/world.h"
#include "fpdt/trace/trace.h"

namespace fpdt {

// The machine that computes: a CPU, or GPUs.
struct BenchMachine {
  // The processes of the bench, and what connects their ranks. Null: this process holds all ranks.
  World* world = nullptr;
  Connect connect;
  // Makes the backend of each rank; null: a CpuBackend of `threads` threads (0: the rank's share of
  // the cores).
  std::function<std::unique_ptr<Backend>(Communicator&)> make_backend;
  std::int32_t threads = 0;
  std::chrono::milliseconds deadline{300'000};  // for each wait for a peer
  // Device memory in use by any program, on all devices of this process's ranks, as the driver
  // reports it; null: no device.
  std::function<Bytes()> used_memory;
  std::int64_t devices = 1;  // of all processes
  Bytes workspace;           // part of it that each rank's backend keeps for its kernels
};

struct MeasureOptions {
  std::int32_t rounds = 7;      // recorded steps, after one that is not recorded
  double step_seconds = 20e-3;  // target for one step, which sets its number of calls
};

struct Measured {
  std::vector<Trace> traces;  // of all recorded steps; of all ranks on process 0, else of its own
  Bytes used;                 // device memory after the last step; 0 if unknown
};
// Together, where there are several processes.
Measured measure(const VerifiedSchedule& schedule, const Contents& contents,
                 const BenchMachine& machine, const MeasureOptions& options);

// Together: what process 0 found, of a quantity that all must agree on.
double common(const BenchMachine& machine, double mine);
// Together: BenchMachine::used_memory, of all processes.
Bytes used_memory(const BenchMachine& machine);

// Mean seconds of the spans of op `op` (an index into Trace::ops).
double mean_seconds(const Trace& trace, std::int32_t op);

// Mean seconds of those spans of `op` that ran while op `beside` was continuously busy: between its
// first start and its last end. 0 if there are none.
double mean_seconds_beside(const Trace& trace, std::int32_t op, std::int32_t beside);

// Mean seconds from the start of an op to the start of the next in issue order, over ops from
// `first` on. 0 if no two follow each other.
double mean_interval(const Trace& trace, std::int32_t first);

}  // namespace fpdt
