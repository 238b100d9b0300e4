// Runs one rank's part of a schedule. It decides nothing: it walks the calls and ops in file order,
// turns each operand into an address (start of the space + offset of the buffer + slot of the
// version + first row) and launches. A step allocates nothing and does not wait. The executor knows
// no method by name.
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
  // Schedule, backend, communicator and the record of the rank (null: none is kept) must outlive
  // the executor. Throws InputError when the backend refuses an op, and MemoryError when the
  // machine lacks the memory.
  Executor(const VerifiedSchedule& schedule, Backend& backend, Communicator& communicator,
           FlightRecorder* flight = nullptr);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Runs one step: schedule.train or schedule.evaluate. Blocks until it is complete. Throws the
  // rank's first error.
  void run(std::span<const Call> calls);

  // Runs a step and returns when each op ran. Recording costs two clock readings per op.
  Trace record(std::span<const Call> calls);

  // Writes the contents of one slot, between steps.
  void write(BufferIndex buffer, std::int64_t slot, std::span<const std::byte> contents);
  void read(BufferIndex buffer, std::int64_t slot, std::span<std::byte> contents) const;
  // The same for a part of a slot, from byte `first` on.
  void write_part(BufferIndex buffer, std::int64_t slot, std::int64_t first,
                  std::span<const std::byte> contents);
  void read_part(BufferIndex buffer, std::int64_t slot, std::int64_t first,
                 std::span<std::byte> contents) const;

  // The slot itself, if the host can address the space (always on a CPU).
  [[nodiscard]] std::span<std::byte> slot(BufferIndex buffer, std::int64_t slot) const {
    return addresses_.slot(buffer, slot);
  }

  // Sets every byte of an arena, or reads it back, between steps.
  void fill(MemorySpace space, std::byte value);
  [[nodiscard]] std::vector<std::byte> contents(MemorySpace space) const;

  // The address of the arena. The host may be unable to access it (on a CPU it always can).
  [[nodiscard]] std::span<std::byte> arena(MemorySpace space) const {
    return arenas_[static_cast<std::size_t>(space)];
  }
  [[nodiscard]] bool demand_paged() const { return backend_.demand_paged(); }
  [[nodiscard]] std::optional<Bytes> untouched(std::span<const std::byte> range) const {
    return backend_.untouched(range);
  }
  // The bytes that the rank has sent to others so far. Call it between steps.
  [[nodiscard]] Traffic sent() const { return communicator_.sent(); }
  [[nodiscard]] const Program& program() const { return program_; }
  [[nodiscard]] const Schedule& schedule() const { return *program_.schedule; }

 private:
  void step(std::span<const Call> calls, Interval* intervals);

  Program program_;
  Backend& backend_;
  const Communicator& communicator_;
  FlightRecorder* flight_;
  std::uint32_t runs_ = 0;  // begun so far
  std::uint32_t train_ops_ = 0;
  Arenas arenas_;
  Addresses addresses_;
  Expansion start_;  // before the first call
  Expansion expansion_;
  std::vector<View> views_;
  std::vector<Event> waits_;
};

}  // namespace fpdt
