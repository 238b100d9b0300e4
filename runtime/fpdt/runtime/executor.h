// Runs one rank's part of a schedule. Decides nothing: it walks the calls and ops in file order,
// turns each operand into an address (start of the space + offset of the buffer + slot of the
// version + first row) and launches. No allocation and no waiting inside a step; no method has a
// name here.
//
//   CpuBackend backend(communicator);
//   Executor executor(schedule, backend, communicator);
//   executor.write(weights, 0, bytes);      // states and inputs, between steps
//   executor.run(schedule.train);
//   executor.read(loss, 0, bytes);
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fpdt/runtime/backend.h"
#include "fpdt/runtime/communicator.h"
#include "fpdt/runtime/resolve.h"
#include "fpdt/schedule/expand.h"
#include "fpdt/schedule/verify.h"
#include "fpdt/trace/trace.h"

namespace fpdt {

class Executor {
 public:
  // Schedule, backend and communicator outlive the executor. InputError when the backend refuses
  // an op, MemoryError when the machine lacks the memory.
  Executor(const VerifiedSchedule& schedule, Backend& backend, Communicator& communicator);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // One step: schedule.train or schedule.evaluate. Blocks until it is complete; throws the rank's
  // first error.
  void run(std::span<const Call> calls);

  // The same, and what happened when. Recording costs two clock readings an op.
  Trace record(std::span<const Call> calls);

  // Contents of one slot, between steps.
  void write(BufferIndex buffer, std::int64_t slot, std::span<const std::byte> contents);
  void read(BufferIndex buffer, std::int64_t slot, std::span<std::byte> contents) const;
  // Some of its bytes, from `first` on.
  void write_part(BufferIndex buffer, std::int64_t slot, std::int64_t first,
                  std::span<const std::byte> contents);

  // The slot itself, where the host can address the space (always on a CPU).
  [[nodiscard]] std::span<std::byte> slot(BufferIndex buffer, std::int64_t slot) const {
    return addresses_.slot(buffer, slot);
  }

  // A whole arena, between steps: every byte set, and read back.
  void fill(MemorySpace space, std::byte value);
  [[nodiscard]] std::vector<std::byte> contents(MemorySpace space) const;

  // Where the arena lies; the host may not be able to address it (always on a CPU).
  [[nodiscard]] std::span<std::byte> arena(MemorySpace space) const {
    return arenas_[static_cast<std::size_t>(space)];
  }
  [[nodiscard]] bool demand_paged() const { return backend_.demand_paged(); }
  [[nodiscard]] std::optional<Bytes> untouched(std::span<const std::byte> range) const {
    return backend_.untouched(range);
  }
  [[nodiscard]] const Program& program() const { return program_; }
  [[nodiscard]] const Schedule& schedule() const { return *program_.schedule; }

 private:
  void step(std::span<const Call> calls, Interval* intervals);

  Program program_;
  Backend& backend_;
  std::int64_t rank_;
  Arenas arenas_;
  Addresses addresses_;
  Expansion start_;  // before the first call
  Expansion expansion_;
  std::vector<View> views_;
  std::vector<Event> waits_;
};

}  // namespace fpdt
